"""Slips in what is ranked, counted and averaged: metrics, evaluation batches, lists of the best items, references."""

from tests.mutation.edit import edits_of

RECOMMENDER = "tests/zoo/methods/test_recommender.py"
RANKED = ("tests/zoo/data/test_metrics.py", "tests/zoo/data/test_metrics_ranking.py", RECOMMENDER)

RANKINGS = (
    *edits_of(
        "zoo/data/metrics.py",
        RANKED,
        ("a NaN of a candidate loses", "(~(others <= target) & valid)", "((others > target) & valid)"),
        ("padding ties with the positive", "((others == target) & valid).sum(1)", "(others == target).sum(1)"),
        (
            "the reciprocal rank is squared",
            "1 / torch.log2(rank + 1), 1 / rank]",
            "1 / torch.log2(rank + 1), rank**-2]",
        ),
        (
            "a worst order is one too good",
            "num_better, num_tied = num_better + num_tied,",
            "num_better, num_tied = num_better + num_tied - 1,",
        ),
        (
            "the largest cut-off limits no other",
            "first = num_better.clamp(max=min(k, last))",
            "first = num_better.clamp(max=last)",
        ),
        (
            "ranks beyond the cut-off count",
            "until = (num_better + num_tied + 1).clamp(max=min(k, last))",
            "until = (num_better + num_tied + 1).clamp(max=last)",
        ),
        ("the smallest cut-off ends all", "last = min(max(ks), most + 1)", "last = min(min(ks), most + 1)"),
        (
            "many ties above are no ranks",
            "for counts in (num_better, num_tied))",
            "for counts in (num_better, num_better))",
        ),
        (
            "ties are expected whatever is asked",
            'self.sums += ranking_values(num_better, num_tied, self.ks).sum(2) if self.ties == "expected" else pessimistic',
            "self.sums += ranking_values(num_better, num_tied, self.ks).sum(2)",
        ),
        (
            "cases are told with expected ties",
            "ranking_values(num_better, num_tied, self.ks, self.ties).float()",
            "ranking_values(num_better, num_tied, self.ks).float()",
        ),
        ("a batch is a case", "self.cases += len(num_better)", "self.cases += 1"),
        (
            "pessimistic figures are the last batch's",
            "self.pessimistic_sums += pessimistic",
            "self.pessimistic_sums = pessimistic",
        ),
        (
            "two processes have the cases of one",
            '"cases", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")\n\n    def update(self, num_better',
            '"cases", torch.zeros((), dtype=torch.long), dist_reduce_fx="max")\n\n    def update(self, num_better',
        ),
        ("every cut-off has the list of the longest", "items = best[:, :k]\n", "items = best\n"),
        ("novelty is of the longest list", "bits[:, :k].sum(1) / (best[:, :k] >= 0)", "bits.sum(1) / (best >= 0)"),
        ("a short list is divided by its length asked", "(best[:, :k] >= 0).sum(1).clamp(min=1)", "k"),
        (
            "padding has the novelty of the first item",
            "torch.where(best >= 0, self.bits[best.clamp(min=0)], 0.0)",
            "self.bits[best.clamp(min=0)]",
        ),
        ("novelty is of the last batch", "self.surprisal += torch.stack(", "self.surprisal = torch.stack("),
        ("lists keep the cases of the last epoch", "            self.lists.reset()\n", ""),
        ("rankings keep the cases of the last epoch", "            metric.reset()\n", ""),
        (
            "lists are as long as the first cut-off",
            "best_listed(scores, batch, max(self.lists.ks))",
            "best_listed(scores, batch, self.lists.ks[0])",
        ),
        (
            "sampled counts are those of all items",
            'kinds = {"sampled": sampled, "full": full}',
            'kinds = {"sampled": sampled or full, "full": full}',
        ),
        ("level is above", '"level": num_tied.int()}', '"level": num_better.int()}'),
        ("a mean error is a sum", "return self.part / self.whole", "return self.part"),
        ("signs count batches", "self.whole += len(scores)", "self.whole += 1"),
    ),
    *edits_of(
        "zoo/data/best_items.py",
        RANKED,
        (
            "a user's seen items are the next user's",
            "seen = batch.seen_rows, batch.seen_items",
            "seen = batch.seen_rows.clamp(max=0), batch.seen_items",
        ),
        (
            "one item less than asked for",
            "_highest_of_others(own, min(k, scores.shape[1]), left_out)",
            "_highest_of_others(own, min(k, scores.shape[1] - 1), left_out)",
        ),
        ("items that no case ranks are listed", "block[:, left_out] = -torch.inf", "block[:, left_out] += 0"),
        ("scores of left-out items are lost", "block[:, left_out] = before", "pass"),
        (
            "the best of half of the groups",
            'if scores.device.type != "cpu" or width < 4 * k:',
            'if scores.device.type != "cpu" or width < k // 4:',
        ),
    ),
    *edits_of(
        "zoo/data/held_out_cases.py",
        ("tests/zoo/data/test_training_batches.py", RECOMMENDER),
        (
            "the last batch is left out",
            "return -(-len(self.order) // self.batch_size)",
            "return len(self.order) // self.batch_size",
        ),
        ("a case has the ratings of the first", "*seen, self.ratings[index],", "*seen, self.ratings[: len(index)],"),
        ("candidates are of the first cases", "self.candidates[index].long()", "self.candidates[: len(index)].long()"),
        (
            "what a user has is looked up by case",
            "rows, items = entries(self.seen, users)",
            "rows, items = entries(self.seen, index)",
        ),
    ),
    *edits_of(
        "zoo/data/best_items.py",
        ("tests/callbacks/test_recommendation_writer.py",),
        (
            "users get each other's rows",
            "train.user_ids[users].repeat(count).tolist()",
            "train.user_ids[users].tolist() * count",
        ),
    ),
    *edits_of(
        "callbacks/references.py",
        ("tests/callbacks/test_references.py",),
        ("counts tie with the positive itself", "after - before - level)", "after - before)"),
        ("what is seen has more ratings", "(len(counts) - after - more,", "(len(counts) - after,"),
        (
            "padding is as popular as the first item",
            "counts[cases.candidates.clamp(min=0)], listed)",
            "counts[cases.candidates.clamp(min=0)])",
        ),
        ("chance ranks among all lists", "listed.sum(1)", "torch.full_like(own, listed.shape[1])"),
        (
            "chance is decided against the model",
            "(torch.zeros_like(others), others, ks)",
            "(torch.zeros_like(others), others, ks, ties)",
        ),
        (
            "counts tie in the model's favour",
            "ranking_values(num_better, num_tied, ks, ties)",
            "ranking_values(num_better, num_tied, ks)",
        ),
        (
            "the best epoch is the last",
            "best = max(range(len(values)), key=values.__getitem__)",
            "best = len(values) - 1",
        ),
    ),
)
