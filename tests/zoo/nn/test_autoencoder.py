"""LinearAutoencoder: sparse and dense rows have the same code, and the error is that of the decoded row."""

import torch

from zoo.data.rows import Bags
from zoo.nn.autoencoder import LinearAutoencoder

ROWS = Bags(torch.tensor([0, 3, 2]), torch.tensor([0, 2, 2]), torch.tensor([1.0, 1.0, 1.0]))


def test_codes_and_errors() -> None:
    torch.manual_seed(0)
    network = LinearAutoencoder(5, 3)
    torch.nn.init.normal_(network.encoder.bias)
    torch.nn.init.normal_(network.decoder.bias)
    dense = ROWS.dense(5)
    codes = network.encode(dense)
    assert torch.allclose(codes, network.encode_sparse(ROWS), atol=1e-6)
    assert torch.allclose(codes[2], network.encoder.weight[2] + network.encoder.bias)
    decoded = codes @ network.decoder.weight.T + network.decoder.bias
    assert torch.allclose(network.errors(codes, dense), ((decoded - dense) ** 2).mean(1))
