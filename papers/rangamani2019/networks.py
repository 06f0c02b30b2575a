"""The networks of the paper, as chains of layers with ReLU between them.

Its LeNet has "two convolutional-pooling layers, followed by two fully connected layers of
120 and 84 neurons before the final output layer with 10 neurons" (section 4.1). That is
network C1 of its Table 1, whose FC(320, 120) fixes the rest: 5 x 5 convolutions to 10 and
20 channels without padding, and 2 x 2 max pooling.
"""

from __future__ import annotations

F1 = {"kind": "fully connected", "widths": [784, 300, 100, 10]}
C1 = {
    "kind": "LeNet",
    "size": 28,
    "channels": [10, 20],
    "kernels": [5, 5],
    "widths": [120, 84, 10],
}
MNIST_FC = {"kind": "fully connected", "widths": [784, 512, 512, 512, 512, 512, 10]}
TINY_FC = {"kind": "fully connected", "widths": [64, 32, 10]}
TINY_LENET = {
    "kind": "LeNet",
    "size": 8,
    "channels": [4, 8],
    "kernels": [3, 2],
    "widths": [16, 12, 10],
}
