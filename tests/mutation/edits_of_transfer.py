"""Slips in what methods learn from another domain by."""

from tests.mutation.edit import edits_of

NN, OF_NN, METHODS_ROOM, OF_METHODS = "zoo/nn", "tests/zoo/nn", "zoo/methods", "tests/zoo/methods"

TRANSFER = (
    *edits_of(
        f"{NN}/orthogonal.py",
        (f"{OF_NN}/test_orthogonal.py",),
        ("there and back instead of back and there", "self(self.back(factors))", "self.back(self(factors))"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/etl.py",
        (f"{OF_METHODS}/test_etl.py",),
        ("draws of the prior are taken for codes", "F.softplus(-self(torch.randn", "F.softplus(self(torch.randn"),
        ("codes are to be told from the prior", "return F.softplus(-self(codes))", "return F.softplus(self(codes))"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/etl.py",
        (f"{OF_METHODS}/test_etl.py",),
        (
            "mapped codes are summed over sources",
            "return mean_over_sources(said, torch.zeros_like(shared))",
            "mean, present = mean_over_sources(said, torch.zeros_like(shared))\n"
            "        return mean * len(said), present",
        ),
        (
            "a mapped code has nothing of its user",
            "(coder.encoder(source) + shared).relu()",
            "coder.encoder(source).relu()",
        ),
    ),
    *edits_of(
        f"{METHODS_ROOM}/etl.py",
        (f"{OF_METHODS}/test_etl.py",),
        ("a target code goes the source's way", "rebuilt(side.map.back(here))", "rebuilt(side.map(here))"),
        ("the prior holds rectified codes", "critic.loss_of(code)", "critic.loss_of(code.relu())"),
        (
            "sources are learned from users whom they have not",
            "where = present.nonzero()",
            "where = (present >= 0).nonzero()",
        ),
        ("what was never learned of a user is added", "net.users(users) * ~cold", "net.users(users)"),
        ("users whom no release has get cross logits", ", self.cross_share) * present[:, None]", ", self.cross_share)"),
        ("cold users are ranked by own logits", "torch.where(cold, 1.0,", "torch.where(cold, 0.0,"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/mixed_factors.py",
        (f"{OF_METHODS}/test_emcdr.py",),
        ("who has no row is mapped", "torch.where(present[:, None], known, own)", "known"),
        (
            "who has no history keeps a factor",
            "torch.where((self.target_rows.counts_of(users) > 0)[:, None], self.mix(own, mapped, self.share), mapped)",
            "self.mix(own, mapped, self.share)",
        ),
        ("the worst share is chosen", "values.argmax()", "values.argmin()"),
    ),
    *edits_of(
        f"{NN}/mapping.py",
        (f"{OF_NN}/test_mapping.py",),
        ("what is said is summed over sources", "return total / count.clamp(min=1), count", "return total, count"),
        ("what was standardised stays so", "vectors * self.scale + self.centre", "vectors"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/fedcdr.py",
        (f"{OF_METHODS}/test_fedcdr.py",),
        (
            "other domains move the items",
            "self.factors.items(items[there]).detach()",
            "self.factors.items(items[there])",
        ),
        ("other domains move the heads", "self.heads(users).detach()", "self.heads(users)"),
        ("a vector is scored without its head", "self.heads(users) * self.factors", "self.factors"),
        ("a mapped vector takes from the own one", "own + share * mapped", "own.lerp(mapped, share)"),
        ("mapped vectors cost nothing", "self.l2 / 2 * mapped[there]", "0 * mapped[there]"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/fedct.py",
        (f"{OF_METHODS}/test_fedct.py",),
        ("a latent is drawn with its variance for its spread", "(log_variances / 2).exp()", "log_variances.exp()"),
        (
            "latents are driven off the prior",
            "log_variances.exp() - 1 - log_variances",
            "log_variances - 1 - log_variances.exp()",
        ),
        ("domains teach of users whom they have not", "drawn) * present).sum()", "drawn)).sum()"),
        ("nothing is encoded", "encoded.square().mean(1) + decoded", "decoded"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/fedct.py",
        (f"{OF_METHODS}/test_fedct.py",),
        ("latents move the factors", "self.factors.users(users).detach()", "self.factors.users(users)"),
        (
            "who is known is decoded from the sources alone",
            "torch.where(known, self._decoded",
            "torch.where(~known, self._decoded",
        ),
        ("a decoded factor stays standardised", "self._standard().undo(", "("),
        ("a user of a batch counts twice", "torch.unique(batch.users)", "batch.users"),
        ("users without history count in the mean", ".detach()[self.learned]", ".detach()"),
    ),
)
