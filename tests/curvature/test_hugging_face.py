"""Hugging Face models from a configuration, against transformers' own loss."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from support.cases import assert_close, random_vector
from torch import Tensor
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

import flatgauge as fg
from flatgauge.vectors import Params, ravel, unravel

transformers = pytest.importorskip("transformers")
SMALL = {"vocab_size": 7, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}


def gpt2(attention: str):
    config = transformers.GPT2Config(
        n_embd=4,
        n_layer=1,
        n_head=2,
        n_inner=5,
        n_positions=6,
        attn_implementation=attention,
        **SMALL,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.GPT2LMHeadModel(config).double()


def padded_batches() -> list:
    """Two batches of different lengths, padded and masked, with unequal valid counts."""
    random = torch.Generator().manual_seed(1)
    found = []
    for count, length in ((3, 6), (2, 4)):
        tokens = torch.randint(1, 7, (count, length), generator=random)
        mask = torch.ones_like(tokens)
        mask[0, length - 2 :] = 0
        labels = tokens.masked_fill(mask == 0, -100)
        labels[1, 1] = -100
        batch = {"input_ids": tokens, "attention_mask": mask, "labels": labels}
        found.append(transformers.BatchEncoding(batch))
    return found


def transformers_mean(model, batches) -> Tensor:
    """The mean over all valid shifted tokens, from each batch's own loss."""
    valid = [int((batch["labels"][:, 1:] != -100).sum()) for batch in batches]
    with torch.no_grad():
        losses = [model(**batch).loss for batch in batches]
    weighted = [n * loss for n, loss in zip(valid, losses, strict=True)]
    return sum(weighted) / sum(valid)


def dense(model, batches, total, count: int) -> Tensor:
    """∇² of the mean loss by torch alone, of one flat vector."""
    space: Params = {n: p.detach() for n, p in model.named_parameters()}

    def mean(flat: Tensor) -> Tensor:
        state = unravel(flat, space)
        with sdpa_kernel(SDPBackend.MATH):
            return sum(total(functional_call(model, state, (), b), b) for b in batches)

    return torch.autograd.functional.hessian(mean, ravel(space)) / count


@functools.cache
def gpt2_dense() -> Tensor:
    batches = [dict(batch) for batch in padded_batches()]
    labels = [batch.pop("labels") for batch in batches]
    count = sum(int((one[:, 1:] != -100).sum()) for one in labels)
    lookup = {id(batch): one for batch, one in zip(batches, labels, strict=True)}

    def total(outputs, batch):
        scores, targets = outputs.logits[:, :-1], lookup[id(batch)][:, 1:]
        return F.cross_entropy(
            scores.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum"
        )

    return dense(gpt2("eager").eval(), batches, total, count)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_gpt2_with_padded_masked_batches(attention):
    model, batches = gpt2(attention), padded_batches()
    objective = fg.Objective(model, batches)
    expected = float(transformers_mean(model.eval(), batches))
    # transformers computes a language model's loss in float32.
    assert objective.value() == pytest.approx(expected, rel=1e-6)
    vector = random_vector(objective)
    product = gpt2_dense() @ ravel(vector)
    assert_close(ravel(fg.Hessian(objective) @ vector), product)
    assert_close(ravel(fg.Hessian(objective, memory_budget=0) @ vector), product)


def test_gpt2_in_one_batch_is_the_same():
    tokens = torch.randint(1, 7, (5, 6), generator=torch.Generator().manual_seed(1))
    labels = tokens.clone()
    labels[0, 1:4] = labels[3, 2:] = -100
    whole = [{"input_ids": tokens, "labels": labels}]
    parts = [
        {"input_ids": tokens[a:b], "labels": labels[a:b]} for a, b in ((0, 1), (1, 5))
    ]
    one, two = (fg.Objective(gpt2("sdpa"), data) for data in (whole, parts))
    assert one.value() == pytest.approx(two.value(), rel=1e-12)
    vector = one.gradient()
    assert_close(two.gradient(), vector)
    assert_close(fg.Hessian(two) @ vector, fg.Hessian(one) @ vector)


def test_forward_overrides_the_shift():
    model, batches = gpt2("sdpa"), padded_batches()
    objective = fg.Objective(
        model,
        batches,
        forward=lambda m, b: (
            m(b["input_ids"], attention_mask=b["attention_mask"]).logits
        ),
    )
    assert objective.sample_count == sum(
        int((b["labels"] != -100).sum()) for b in batches
    )


def bert(kind: str, **options):
    config = transformers.BertConfig(
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=5,
        max_position_embeddings=6,
        num_labels=3,
        **SMALL,
        **options,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return getattr(transformers, kind)(config).double()


def test_bert_for_classification():
    model = bert("BertForSequenceClassification")
    batches = [dict(batch) for batch in padded_batches()]
    labels = [torch.tensor([0, 1, 2]), torch.tensor([2, 0])]
    for batch, one in zip(batches, labels, strict=True):
        batch["labels"] = one
    objective = fg.Objective(model, batches)
    model.eval()
    inputs = [{k: v for k, v in b.items() if k != "labels"} for b in batches]
    lookup = {id(batch): one for batch, one in zip(inputs, labels, strict=True)}

    def total(outputs, batch):
        return F.cross_entropy(outputs.logits, lookup[id(batch)], reduction="sum")

    with torch.no_grad():
        expected = sum(float(model(**b).loss) * len(b["labels"]) for b in batches) / 5
    assert objective.value() == pytest.approx(expected, rel=1e-12)
    vector = random_vector(objective)
    matrix = dense(model, inputs, total, 5)
    assert_close(ravel(fg.Hessian(objective) @ vector), matrix @ ravel(vector))


def test_bert_for_tokens_is_not_shifted():
    model, batches = bert("BertForTokenClassification"), padded_batches()
    for batch in batches:
        batch["labels"] = torch.where(batch["labels"] < 0, -100, batch["labels"] % 3)
    valid = [int((batch["labels"] != -100).sum()) for batch in batches]
    objective = fg.Objective(model, batches)
    model.eval()
    with torch.no_grad():
        losses = [float(model(**batch).loss) for batch in batches]
    total = sum(n * loss for n, loss in zip(valid, losses, strict=True))
    assert objective.sample_count == sum(valid)
    assert objective.value() == pytest.approx(total / sum(valid), rel=1e-12)


def test_the_gauss_newton_diagonal_of_gpt2():
    """Fused projections, tied embeddings and positions, against products with units."""
    batches = padded_batches()
    objective = fg.Objective(gpt2("sdpa"), batches)
    found = fg.gauss_newton_diagonal(objective, "exact")
    expected = fg.GaussNewton(objective).to_dense().diagonal()
    assert_close(ravel(found.values), expected)
