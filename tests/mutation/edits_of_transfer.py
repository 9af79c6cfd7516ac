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
        f"{NN}/prior.py",
        (f"{OF_NN}/test_prior.py",),
        ("draws of the prior are taken for codes", "F.softplus(-self(torch.randn", "F.softplus(self(torch.randn"),
        ("codes are to be told from the prior", "return F.softplus(-self(codes))", "return F.softplus(self(codes))"),
    ),
    *edits_of(
        f"{NN}/coupled.py",
        (f"{OF_METHODS}/test_etl.py",),
        ("mapped codes are summed over sources", "return total / count.clamp(min=1), count", "return total, count"),
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
)
