"""A small module for Lightning, which must be installed."""

from __future__ import annotations

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from support.training import dropout_network


class Lit(pl.LightningModule):
    def __init__(self, lr: float = 0.01):
        super().__init__()
        self.save_hyperparameters()
        self.net = dropout_network()

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("train", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams["lr"])
