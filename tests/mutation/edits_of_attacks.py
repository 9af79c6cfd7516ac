"""Slips in what an attack is measured by: one that finds too little, or counts too much, would show a release as it is not."""

from tests.mutation.edit import edits_of

ATTACKS_ROOM, OF_ATTACKS = "zoo/commands/privacy/attacks", "tests/zoo/commands/privacy/attacks"

ATTACKS = (
    *edits_of(
        f"{ATTACKS_ROOM}/inverse.py",
        (f"{OF_ATTACKS}/test_inverse.py",),
        ("the map is of vectors that are not centred", "(rows - ridge.centre) @ weights", "rows @ weights"),
        ("a perceptron is as it began", "net.load_state_dict(best)", "net.eval()"),
        (
            "items are learned by squared error",
            "if isinstance(targets, np.ndarray) else F.binary",
            "if True else F.binary",
        ),
        ("all rows are dense at once", "min(512, CELLS // max(columns, 1))", "512"),
    ),
    *edits_of(
        f"{ATTACKS_ROOM}/reconstruction.py",
        (f"{OF_ATTACKS}/test_reconstruction.py",),
        (
            "leakage is in the unit of the vectors",
            "float(np.sqrt(missed).mean()) / scale)",
            "float(np.sqrt(missed).mean()))",
        ),
        ("ties count for the adversary", "left * (equal & owned).sum(axis=1)", "(equal & owned).sum(axis=1)"),
        ("pairs of own items are counted", "- counts * (counts + 1) / 2", "- counts"),
        (
            "an adversary attacks whom it knows",
            "return cls(users[:count], users[count:])",
            "return cls(users[:count], users)",
        ),
        ("who has nothing is attacked", "np.flatnonzero(np.diff(items.indptr))", "np.arange(items.shape[0])"),
        ("popularity is that of the attacked", "items[adversary.known].sum", "items[adversary.attacked].sum"),
    ),
    *edits_of(
        f"{ATTACKS_ROOM}/updates.py",
        (f"{OF_ATTACKS}/test_updates.py",),
        ("the larger side is guessed", "(of_side - updates.weights).abs().argmin(0)", "of_side.argmax(0)"),
        (
            "all clients have one direction",
            "nothing.index_add(0, clients, along",
            "nothing.index_add(0, 0 * clients, along",
        ),
        ("recall is of what is guessed", "right / of_client(owned)", "right / of_client(guess)"),
    ),
    *edits_of(
        "zoo/commands/privacy/attack.py",
        ("tests/zoo/commands/privacy/test_attack.py",),
        ("the control is the release itself", '("shuffled", rows[others])', '("shuffled", rows)'),
        ("a part of an epsilon is taken for the whole", "publisher.num_releases).epsilon", "1).epsilon"),
        ("spread is that of a population", "np.std(values, ddof=1)", "np.std(values)"),
    ),
    *edits_of(
        "callbacks/attention_figure.py",
        ("tests/callbacks/test_attention_figure.py",),
        ("whom a source has not weighs nothing", ".links[users] >= 0]", ".links[users] >= -1]"),
        ("attention is asked after it is held", "if not bool(getattr(method", "if True or not bool(getattr(method"),
        ("the lightest source is on top", "-means[name])", "means[name])"),
        ("the first epoch is written", "last = self.course[max(self.course)]", "last = self.course[min(self.course)]"),
    ),
    *edits_of(
        "callbacks/boundary_ledger.py",
        ("tests/callbacks/test_boundary_ledger_of_sources.py",),
        ("everybody gets a row of each release", "(data.links[name] >= 0).sum()", "(data.links[name] >= -1).sum()"),
        ("a release goes to a server", "'clients of' if federated", "'server of' if federated"),
    ),
    *edits_of(
        "zoo/methods/fedgcdr.py",
        ("tests/callbacks/test_boundary_ledger_of_sources.py",),
        ("maps are sent whoever is in the round", ".links[users] >= 0).any()", ".links[users] >= -1).any()"),
    ),
)
