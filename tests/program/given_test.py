"""What an operator is given and one device is not: statistics of an earlier step, a number that ranks share, a mean over fewer
elements, weights that each rank changed within the step. The drill names it."""
import unittest

from drill_test import MEAN, line_of, script
from program_test import ScriptTest

ASCENT = """with {first}:
        F.mse_loss(model(x[mine]), y[mine]).backward()
    old = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters(): p.add_(0.1 * p.grad)
    optimizer.zero_grad()"""
DESCENT = """with torch.no_grad():
        for p, was in zip(model.parameters(), old): p.copy_(was)"""


class Given(ScriptTest):
    def test_statistics_that_outlive_their_step(self):
        """As the centre of DINO's teacher: what the first step leaves is each rank's own, and the second is the first that uses it."""
        after = "seen = 0.9 * globals().get('seen', torch.zeros(3)) + 0.1 * {mean}"
        text = script(loss="F.mse_loss(out, (y[mine] - globals().get('seen', torch.zeros(3))).softmax(1))", after=after)
        said = self.verified(text.replace("{mean}", "out.detach().mean(0)"), 1, "--drill")
        self.assertIn("fail: step 2, ", said)
        self.assertIn("cause own_batch: ", said)
        line = line_of(text, "{mean}")
        self.assertIn(f"is given what torch.Tensor.mean makes of each rank's own batch, at train.py:{line}", said)
        shared = "sum(torch.distributed.nn.functional.all_gather(out.detach().mean(0))) / world"
        self.verified(text.replace("{mean}", shared).replace("import torch, ", "import torch.distributed.nn, torch, "), 0)

    def test_statistics_with_as_many_rows_as_the_batch(self):
        """A rank has four samples: sums over them of four columns, and counts of four kinds."""
        for name, made in (("Tensor.sum", "x[mine][:, :4].abs().sum(0)"),
                           ("bincount", "torch.bincount((x[mine, 0] > 0).long(), minlength=4).double()")):
            with self.subTest(name):
                said = self.verified(script(before=f"w = 1 + {made}[:3]", loss="F.mse_loss(out * w, y[mine])"), 1, "--drill")
                self.assertIn(f"is given what torch.{name} makes of each rank's own batch", said)

    def test_what_each_rank_keeps_of_its_own_samples(self):
        """As a queue of keys: no row of it is made of a batch as a whole."""
        kept = "queue = globals().get('queue', y[:12])"
        text = script(before=kept, loss="F.cross_entropy(out @ queue.T, torch.zeros(len(out)).long())",
                      after="queue = torch.cat([{own}, queue])[:12]")
        said = self.verified(text.replace("{own}", "y[mine]"), 1, "--drill")
        self.assertIn("fail: step 2, ", said)
        self.assertIn("cause own_constants: ", said)
        self.assertIn("; torch.Tensor.matmul is given it\n", said)
        self.verified(text.replace("{own}", "y[begin:begin + 12]"), 0)

    def test_a_part_of_the_wrapped_model_that_nothing_trains(self):
        """As a teacher in it that follows the student, on one rank alone."""
        text = script(layer="nn.Linear(9, 9).requires_grad_(False)", after="net[1].weight.data.mul_(1 + 0.1 * {rank})",
                      optimizer="SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)")
        said = self.verified(text.replace("{rank}", "rank"), 1)
        self.assertIn("fail: step 2, ", said)
        self.assertIn("cause own_frozen_model: ", said)
        self.verified(text.replace("{rank}", "1"), 0)

    def test_a_number_that_each_rank_divides_its_loss_by(self):
        """That its gradient is then a weighted one does not make it a function of a mean."""
        said = self.verified(script(before="size = globals().get('size', 1.0)", loss=f"{MEAN} / size",
                                    after="size = 0.9 * size + 0.1 * loss.item()"), 1, "--drill")
        self.assertIn("cause loss_scaled_apart: ", said)

    def test_a_number_that_ranks_share(self):
        text = script(before="seen = globals().get('seen', 0) + len(x[mine]){times}", loss="F.mse_loss(out / (1 + seen / 48), y[mine])")
        said = self.verified(text.replace("{times}", ""), 1, "--drill")
        self.assertIn("cause other_numbers: ", said)
        self.assertIn("torch.Tensor.div is given 1.083, 1.083, 1.083, and on one device 1.25", said)
        self.verified(text.replace("{times}", " * world"), 0)

    def test_a_mean_over_as_many_elements_as_a_rank_keeps(self):
        kept = "F.mse_loss(out, y[mine], reduction='none').mean(1)[x[mine, 0] > 0.2]"
        said = self.verified(script(loss=f"{kept}.mean()"), 1, "--drill")
        self.assertIn("cause mean_of_means: ", said)

    def test_a_quotient_of_sums(self):
        """Soft Dice over the batch: a number is added to sums that are right. Where what divides is a constant it is but a factor."""
        for made in ("out.sigmoid()", "out.softmax(1)"):
            dice = f"1 - (2 * ({made} * (y[mine] > 0)).sum() + 1) / ({made}.sum() + 3 * len(out) + 1)"
            said = self.verified(script(loss=dice), 1, "--drill")
            self.assertIn("cause function_of_mean: ", said)

    def test_a_maximum_that_each_rank_weights_by(self):
        """With it the gradient is a weighted one, as it is of functions of a mean."""
        text = script(before="w = weight[mine] / weight[mine].max()", loss="(w * (out - y[mine]) ** 2).mean()")
        said = self.verified(text, 1, "--drill")
        self.assertIn("cause own_batch: ", said)
        self.assertIn("is given what torch.Tensor.max makes of each rank's own batch, at train.py:14", said)

    def test_a_teacher_that_normalizes_by_the_batch(self):
        before = ("teacher = globals().get('teacher') or nn.Sequential(nn.Linear(7, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)){mode}\n"
                  "    with torch.no_grad(): due = teacher(x[mine])")
        text = script(before=before, loss="F.mse_loss(out, due)")
        said = self.verified(text.replace("{mode}", ""), 1, "--drill")
        self.assertIn("cause local_batch_norm: ", said)
        self.assertIn("mse_loss is given what torch.nn.functional.batch_norm makes of each rank's own batch, at train.py:", said)
        self.verified(text.replace("{mode}", ".eval()"), 0)

    def test_models_whose_parameters_have_the_same_names(self):
        """One is frozen while the other one is trained, and steps by itself: neither is taken for the other."""
        begin = """critic = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Identity(), nn.Linear(4, 1)))
of_critic = torch.optim.SGD(critic.parameters(), lr=0.05)
for begin"""
        before = """of_critic.zero_grad(); (critic(y[mine]) ** 2).mean().backward(); of_critic.step()
    critic.requires_grad_(False)"""
        text = script(before=before, loss="critic.module(out).mean(){times}", after="critic.requires_grad_(True)").replace("for begin", begin)
        said = self.verified(text.replace("{times}", " * world"), 1, "--drill")
        self.assertIn("fail: step 2, gradient of 0.weight\n      cause scaled_by_ranks: ", said)
        said = self.verified(text.replace("{times}", ".abs().sqrt()"), 1, "--drill")
        self.assertNotIn("begins with other weights", said)
        self.assertIn("cause function_of_mean: ", said)
        self.verified(text.replace("{times}", ""), 0)

    def test_what_all_ranks_share_before_their_samples(self):
        """A model is given its support set first, or a number: the samples are what the loader gave."""
        model = """class Near(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, support, x): return self.net(x) - self.net(support).mean(0)
model = nn.parallel.DistributedDataParallel(Near())
samples = torch.utils.data.TensorDataset(x, y)
dealt = torch.utils.data.distributed.DistributedSampler(samples)
loader = iter(torch.utils.data.DataLoader(samples, 4, sampler=dealt))
optimizer"""
        text = script(before="own, due = next(loader)", loss="F.mse_loss(out, due){times}")
        text = text.replace("model = nn.parallel.DistributedDataParallel(net)\noptimizer", model)
        for support in ("x[:5]", "torch.ones(1, 7)"):
            with self.subTest(support):
                whole = text.replace("model(x[mine])", f"model({support}, own)")
                self.verified(whole.replace("{times}", ""), 0)
        self.assertIn("cause scaled_by_ranks: ", self.verified(whole.replace("{times}", " * world"), 1))

    def test_weights_that_each_rank_changes_within_the_step(self):
        text = script(before=ASCENT, after=DESCENT).replace("    optimizer.zero_grad()\n    out", "    out")
        said = self.verified(text.replace("{first}", "model.no_sync()"), 1, "--drill")
        self.assertIn("fail: step 1, gradient of 0.weight\n      cause own_weights: ", said)
        self.assertIn("; 0.weight differs between ranks there", said)
        self.verified(text.replace("{first}", "torch.enable_grad()"), 0)

    def test_a_part_of_a_gradient_that_is_not_summed(self):
        flat = ("flat = torch.cat([p.grad.flatten() for p in net.parameters()])\n    part = flat{cut}\n    dist.all_reduce(part)\n"
                "    part /= world\n    for p, own in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()])):\n"
                "        p.grad.copy_(own.view_as(p))")
        text = script(after=flat).replace("nn.parallel.DistributedDataParallel(net)", "net")
        said = self.verified(text.replace("{cut}", "[:-2]"), 1)
        self.assertIn("fail: step 1, parameter 3.bias\n      cause not_reduced: ", said)
        self.verified(text.replace("{cut}", "[:]"), 0)


if __name__ == "__main__":
    unittest.main()
