"""Samples of unequal length, which a collate function pads to the longest of its batch: one device pads more than ranks do. What a
model is given first does not tell one sample from another here."""
import unittest

from together import TogetherTest

SCRIPT = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler
torch.manual_seed(3)
data = [(torch.randint(1, 9, (3 + 5 * i % 11,)).tolist(), f"document {{i}}") for i in range(36)]
own = torch.Generator().manual_seed(5)
def collate(items):
    {first}
    longest = max(len(words) for words, _ in items)
    longest += -longest % {multiple}
    padded = [{padded} for words, _ in items]
    weights = torch.tensor([{weight} for _ in items])
    kinds = torch.tensor([len(words) % 2 for words, _ in items])
    return {{"kinds": kinds, "words": torch.tensor(padded), "weights": weights, "names": [name for _, name in items], "longest": longest}}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(9, 7, padding_idx=0), nn.Linear(7, 9)
    def forward(self, kinds, words):
        mask = {mask}
        mean = (self.embed(words).tanh() * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return self.out(mean[:, None] + self.embed(words))
dist.init_process_group("gloo")
world = dist.get_world_size()
model = nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(data, seed=2)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch in DataLoader(data, batch_size=4, sampler=sampler, collate_fn=collate, num_workers={workers}):
        words = batch["words"]
        assert len(words) == len(batch["names"]) and words.shape[1] == batch["longest"]
        losses = F.cross_entropy(model(batch["kinds"], words).transpose(1, 2), words, ignore_index=0, reduction="none")
        loss = ({loss} * batch["weights"]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
"""
BEHIND, BEFORE = "words + [0] * (longest - len(words))", "[0] * (longest - len(words)) + words"
SORTED = "items = sorted(items, key=lambda item: -len(item[0]))"
BY_SAMPLE, BY_TOKEN = "losses.sum(1) / (words != 0).sum(1)", "losses.sum() / (words != 0).sum()"


def script(first="pass", padded=BEHIND, mask="(words != 0).double()", loss=BY_SAMPLE, weight="1.0", multiple=1, workers=0):
    return SCRIPT.format(first=first, padded=padded, mask=mask, loss=loss, weight=weight, multiple=multiple, workers=workers)


class Padding(TogetherTest):
    def judged(self, **how):
        return self.verify_text(script(**how), "--world-sizes", 3)

    def test_that_is_masked_passes(self):
        for how in ({}, {"padded": BEFORE, "workers": 2}, {"first": SORTED, "multiple": 8}):
            with self.subTest(how):
                code, said = self.judged(**how)
                self.assertEqual(code, 0, said)

    def test_that_takes_part_is_named(self):
        for how in ({"mask": "torch.ones_like(words).double()"}, {"loss": "losses.mean(1)", "padded": BEFORE, "workers": 2},
                    {"mask": "torch.ones_like(words).double()", "first": SORTED}):
            with self.subTest(how):
                code, said = self.judged(**how)
                self.assertEqual(code, 1, said)
                self.assertIn("float64  fail: step 1, gradient of embed.weight\n      cause unmasked_padding: ", said)

    def test_another_mistake_is_found_beside_it(self):
        for how in ({}, {"first": SORTED, "workers": 2}, {"mask": "torch.ones_like(words).double()"}):
            with self.subTest(how):
                code, said = self.judged(loss=BY_TOKEN, **how)
                self.assertEqual(code, 1, said)
                self.assertIn("cause mean_of_means: ", said)
                self.assertIn("all samples are padded as one device pads them", said)

    def test_batches_that_are_drawn_anew_are_not_compared(self):
        """By a generator of the script's own, when they are collated."""
        code, said = self.judged(weight="float(torch.rand((), generator=own))", loss=BY_TOKEN)
        self.assertEqual(code, 3, said)
        self.assertIn("the ranks' samples are not the batch of one device", said)


if __name__ == "__main__":
    unittest.main()
