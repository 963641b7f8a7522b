"""One step of decoding for 16 sequences, of a model with 8 layers and random weights. Attention is
left out. `diode-engine report -- python examples/decode.py` reports on it, without a GPU too."""

import torch
from torch import nn
from torch.nn.functional import silu

HIDDEN, INNER, VOCABULARY = 2048, 5461, 32001


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN // 2, bias=False)
        self.out = nn.Linear(3 * HIDDEN // 2, HIDDEN, bias=False)
        self.gate = nn.Linear(HIDDEN, INNER, bias=False)
        self.up = nn.Linear(HIDDEN, INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.out(self.qkv(x))
        return x + self.down(silu(self.gate(x)) * self.up(x))


torch.set_default_dtype(torch.bfloat16)
torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(*(Layer() for _ in range(8)), nn.Linear(HIDDEN, VOCABULARY, bias=False))
step = torch.compile(model, mode="max-autotune-no-cudagraphs")
with torch.no_grad():
    step(torch.randn(16, HIDDEN))
