"""The definitions of the ops of capi/include/trafo.h, in plain PyTorch.

The same functions make the reference (float64, CPU) and the peer (any device and dtype); `peer` asks for PyTorch's own fused
operator where there is one. Dropout masks come from the definition in engine/core/numeric/philox.h, written in NumPy.
"""
import dataclasses

import numpy as np
import torch
import torch.nn.functional as F

import trafo_ctypes as trafo


@dataclasses.dataclass(frozen=True)
class Dropout:
    p: float
    seed: int = 1234
    step: int = 5
    dropout_id: int = 6

    def threshold(self):
        return int(np.floor(float(np.float32(self.p)) * 65536 + 0.5))

    def scale(self):
        return 65536 / (65536 - self.threshold())

    def struct(self):
        return trafo.Dropout(p=self.p, step=self.step, dropout_id=self.dropout_id, seed=self.seed)

    def kept(self, shape):
        """True where an element is kept: 16 bits of a Philox block each, eight elements a block."""
        count = int(np.prod(shape, dtype=np.int64))
        block = np.arange((count + 7) // 8, dtype=np.uint64)
        low = np.uint64(0xffffffff)
        counter = [block & low, block >> np.uint64(32), np.full_like(block, self.step), np.full_like(block, self.dropout_id)]
        key = [self.seed & 0xffffffff, self.seed >> 32]
        for _ in range(10):
            product0, product1 = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
            counter = [(product1 >> np.uint64(32)) ^ counter[1] ^ np.uint64(key[0]), product1 & low,
                       (product0 >> np.uint64(32)) ^ counter[3] ^ np.uint64(key[1]), product0 & low]
            key = [(key[0] + 0x9E3779B9) & 0xffffffff, (key[1] + 0xBB67AE85) & 0xffffffff]
        halves = np.stack([(word >> np.uint64(shift)) & np.uint64(0xffff) for word in counter for shift in (0, 16)], 1)
        return torch.from_numpy((halves.reshape(-1)[:count] >= self.threshold()).reshape(shape))


def dropped(x, dropout, kept=None):
    if dropout is None or dropout.threshold() == 0:
        return x
    kept = dropout.kept(tuple(x.shape)) if kept is None else kept
    return x * kept.to(x.device, x.dtype) * dropout.scale()


def activation(x, kind):
    return {trafo.RELU: F.relu, trafo.SILU: F.silu, trafo.GELU: lambda t: F.gelu(t, approximate="tanh"), trafo.GELU_ERF: F.gelu}[kind](x)


def max_dim(x, dim, keep):
    """Values at the first maximum; the gradient goes there."""
    return torch.gather(x, dim, x.detach().argmax(dim, keepdim=True)).squeeze([] if keep else dim)


def visible_keys(queries, keys, causal, device):
    row, column = torch.arange(queries, device=device)[:, None], torch.arange(keys, device=device)[None, :]
    return (column <= row + keys - queries) if causal else torch.ones(queries, keys, dtype=torch.bool, device=device)


def masked_softmax(x, visible):
    """Softmax over the visible entries; a row without any is zeros, also in the gradient."""
    blind = ~visible.any(-1, keepdim=True)
    return torch.softmax(x.masked_fill(~(visible | blind), -torch.inf), -1).masked_fill(blind, 0)


def softmax(x, scale, causal, padding_mask):
    if scale != 1:
        x = x * scale
    if not causal and padding_mask is None:
        return torch.softmax(x, -1)
    visible = torch.ones(x.shape, dtype=torch.bool, device=x.device)
    if causal:
        visible = visible & visible_keys(x.shape[-2], x.shape[-1], True, x.device)
    if padding_mask is not None:
        shape = [1] * (x.dim() - 1) + [x.shape[-1]]
        shape[0] = padding_mask.shape[0] if x.dim() == 4 else 1
        visible = visible & (padding_mask == 0).reshape(shape)
    return masked_softmax(x, visible)


@dataclasses.dataclass
class Attention:
    heads: int
    head_dim: int
    queries: list
    keys: list
    causal: bool = False
    scale: float = 0
    dropout: Dropout = None

    @property
    def width(self):
        return self.heads * self.head_dim

    def __call__(self, q, k, v, peer):
        """Sentence by sentence; q, k, v are [rows, width]."""
        scale = self.scale or self.head_dim ** -0.5
        kept = self.dropout_mask() if self.dropout else None
        q_at = k_at = 0
        out = [q[:0]]
        for nq, nk in zip(self.queries, self.keys):
            rows, columns = slice(q_at, q_at + nq), slice(k_at, k_at + nk)
            q_at, k_at = q_at + nq, k_at + nk
            if nq == 0 or nk == 0:
                out.append(torch.zeros_like(q[rows]))
                continue
            heads = [t.reshape(t.shape[0], self.heads, self.head_dim).transpose(0, 1)
                     for t in (q[rows], k[columns], v[columns])]
            mask = None if kept is None else kept[rows, :, :nk].transpose(0, 1)
            y = self.sentence(*heads, scale, mask, peer)
            out.append(y.transpose(0, 1).reshape(nq, self.width))
        return torch.cat(out)

    def dropout_mask(self):
        """[query rows, heads, keys]; the keys of a row are counted up to a multiple of 32, above 128 of 128."""
        longest = max(self.keys, default=0)
        step = 32 if longest <= 128 else 128
        return self.dropout.kept((sum(self.queries), self.heads, -(-longest // step) * step))

    def sentence(self, q, k, v, scale, kept, peer):
        queries, keys = q.shape[1], k.shape[1]
        visible = visible_keys(queries, keys, self.causal, q.device)
        if peer and kept is None:
            q, k, v = (t[None].contiguous() for t in (q, k, v))  # its CUDA kernels refuse odd strides between rows
            if not self.causal or queries == keys:
                return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=scale)[0]
            blind = ~visible.any(-1, keepdim=True)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible | blind, scale=scale)[0]
            return y.masked_fill(blind, 0)
        p = masked_softmax(q @ k.transpose(1, 2) * scale, visible.expand(q.shape[0], -1, -1))
        return (p if kept is None else dropped(p, self.dropout, kept)) @ v


def layer_norm(x, gamma, beta, epsilon):
    return F.layer_norm(x, x.shape[-1:], gamma, beta, epsilon)


def rms_norm(x, gamma, epsilon, peer):
    if peer:
        return F.rms_norm(x, x.shape[-1:], gamma, epsilon)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * gamma


def rotary(x, positions, heads, kv_heads, head_dim, theta):
    """The halves of every head of queries and keys against each other; values stay as they are."""
    half = torch.arange(head_dim // 2, dtype=torch.float64, device=x.device)
    angles = positions.double()[:, None] * theta ** (-2 * half / head_dim)
    cosine, sine = angles.cos().to(x.dtype)[:, None], angles.sin().to(x.dtype)[:, None]
    parts = x.reshape(x.shape[0], heads + 2 * kv_heads, head_dim)

    def turn(y):
        a, b = y.chunk(2, -1)
        return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)
    turned = heads + kv_heads
    return torch.cat([turn(parts[:, :turned]), parts[:, turned:]], 1).reshape(x.shape)


def swiglu(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def cross_entropy(logits, labels, weights=None, smoothing=0.0, reduction="mean"):
    """[1], or [T] without a reduction; nothing counted gives 0."""
    labels = labels.long()
    counted = labels != -100
    if weights is None and reduction == "mean" and bool(counted.any()):
        return F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="mean").reshape(1)
    losses = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
    if weights is not None:
        losses = losses * weights
    if reduction == "none":
        return losses
    total = losses.sum().reshape(1)
    if reduction == "sum":
        return total
    weight = (counted if weights is None else weights[counted]).sum()
    return total / weight if weight > 0 else total * 0


def adamw(value, gradients, rate, betas, epsilon, decay, clip):
    """The parameter after one step a gradient, and the norm of the last gradient before clipping."""
    parameter = value.detach().clone().requires_grad_()
    optimizer = torch.optim.AdamW([parameter], lr=rate, betas=betas, eps=epsilon, weight_decay=decay)
    for gradient in gradients:
        norm = gradient.norm()
        parameter.grad = gradient * (clip / norm) if clip and norm > clip else gradient.clone()
        optimizer.step()
    return parameter.detach(), norm.reshape(1)


def sinusoids(positions, width, dtype, device):
    """Sines first, then cosines; computed in float64 for a float64 table, in float32 for narrower ones."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    sines = (width + 1) // 2
    column = torch.arange(width, device=device)
    order = torch.where(column < sines, column, column - sines).to(wide)
    angle = torch.arange(positions, device=device, dtype=wide)[:, None] * torch.pow(10000.0, -2 * order / width)
    return torch.where(column < sines, angle.sin(), angle.cos()).to(dtype)
