"""Slips in what is ranked, counted and averaged: metrics, evaluation batches, lists of the best items, references."""

from tests.mutation.edit import edits_of

RECOMMENDER = "tests/zoo/methods/test_recommender.py"
RANKED = ("tests/zoo/data/test_metrics.py", "tests/zoo/data/test_metrics_ranking.py")
RANKED += ("tests/zoo/data/test_list_metrics.py", RECOMMENDER)

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
        ("ties are expected whatever is asked", 'expected = self.ties == "expected"', "expected = True"),
        (
            "cases are told with expected ties",
            "ranking_values(num_better, num_tied, self.ks, self.ties).float()",
            "ranking_values(num_better, num_tied, self.ks).float()",
        ),
        ("a batch is a case", "self.total += len(num_better) if", "self.total += 1 if"),
        (
            "pessimistic figures are the last batch's",
            "self.pessimistic_sums += pessimistic",
            "self.pessimistic_sums = pessimistic",
        ),
        (
            "two processes have the cases of one",
            '"total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")',
            '"total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="max")',
        ),
        ("a mean error is a sum", "return self.part / self.whole", "return self.part"),
        ("signs count batches", "self.whole += len(scores)", "self.whole += 1"),
    ),
    *edits_of(
        "zoo/data/list_metrics.py",
        RANKED,
        ("every cut-off has the list of the longest", "items = best[:, :k]\n", "items = best\n"),
        ("novelty is of the longest list", "size = (best[:, :k] >= 0).sum(1)", "size = (best >= 0).sum(1)"),
        (
            "a short list is divided by its length asked",
            "(bits[:, :k].sum(1) / size.clamp(min=1))",
            "(bits[:, :k].sum(1) / k)",
        ),
        (
            "padding has the novelty of the first item",
            "torch.where(best >= 0, (self.num_users / owners.clamp(min=1)).log2(), 0.0)",
            "(self.num_users / owners.clamp(min=1)).log2()",
        ),
        ("novelty is of the last batch", "self.sums += weighted_sum(", "self.sums = weighted_sum("),
        ("an item without owners is like itself", "- owned) / 2", "- (best >= 0).sum(1).to(best.device)) / 2"),
        ("users weigh by their test items", "self.ndcg += (gains / ideals).sum(1)", "self.ndcg += gains.sum(1)"),
        ("the ideal list has room for all", "num_held_out.clamp(max=k)", "num_held_out.clamp(max=max(self.ks))"),
        ("items seen and left out count twice", "len(batch.left_out) - both", "len(batch.left_out)"),
        ("lists keep the cases of the last epoch", "                own.reset()\n", ""),
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
        ("what a user has is looked up by case", "*entries(rows, users)) for rows", "*entries(rows, index)) for rows"),
    ),
    *edits_of(
        "zoo/data/best_items.py",
        ("tests/callbacks/test_recommendation_writer.py",),
        (
            "users get each other's rows",
            "train.user_ids[users].astype(object).repeat(count).tolist()",
            "train.user_ids[users].tolist() * count",
        ),
    ),
    *edits_of(
        "callbacks/references.py",
        ("tests/callbacks/test_references.py",),
        ("chance is decided against the model", '("chance", chance, "expected")', '("chance", chance, ties)'),
        ("the best epoch is the last", "best = max(validated, key=validated.__getitem__)", "best = max(validated)"),
    ),
    *edits_of(
        "zoo/data/item_scores.py",
        ("tests/callbacks/test_references.py", "tests/zoo/methods/test_recent_popularity.py"),
        ("scores tie with the positive itself", "until - below - level", "until - below"),
        ("what is seen has a higher score", "len(ordered) - until - better,", "len(ordered) - until,"),
        ("left-out items are ranked", "ranked[cases.left_out] = False", "ranked[cases.left_out] = True"),
        ("padding scores like the first item", ", cases.candidates >= 0)", ")"),
        ("scores tie in the model's favour", "cases), ks, ties) for kind", "cases), ks) for kind"),
        ("a window ends before its first time", "train.times >= window_start", "train.times > window_start"),
        ("equal recent counts tie", "+ 1) + every, return_inverse", "+ 1), return_inverse"),
        ("the worst window is chosen", "return max(WINDOWS, key=value)", "return min(WINDOWS, key=value)"),
    ),
    *edits_of(
        "zoo/runs/probing.py",
        ("tests/zoo/runs/test_probing.py",),
        ("numbers are ordered as text", "int(ids[at]) if whole else 0", "0"),
        (
            "cases of one user are independent",
            "index_add_(0, users, values.double() - mean)",
            "index_add_(0, users, values.double() * 0)",
        ),
        ("few users name a rule", "num_users >= LEAST_USERS and ", ""),
    ),
)
