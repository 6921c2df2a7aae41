"""BERT with a question-answering head in plain torch.nn, for machines without HuggingFace transformers."""
import types

import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.inner, self.outer = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.attention_norm, self.norm = nn.LayerNorm(hidden, eps=1e-12), nn.LayerNorm(hidden, eps=1e-12)

    def drop(self, x):
        return F.dropout(x, self.dropout, self.training)

    def forward(self, x, mask):
        batch, length, hidden = x.shape
        q, k, v = (linear(x).view(batch, length, self.heads, -1).transpose(1, 2)
                   for linear in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, mask, self.dropout if self.training else 0.0)
        x = self.attention_norm(x + self.drop(self.out(y.transpose(1, 2).reshape(batch, length, hidden))))
        return self.norm(x + self.drop(self.outer(F.gelu(self.inner(x)))))


class Bert(nn.Module):
    def __init__(self, layers, hidden, vocabulary, positions=512, dropout=0.1):
        super().__init__()
        self.dropout = dropout
        self.words, self.places, self.types = (nn.Embedding(n, hidden) for n in (vocabulary, positions, 2))
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.layers = nn.ModuleList(Layer(hidden, hidden // 64, dropout) for _ in range(layers))
        self.outputs = nn.Linear(hidden, 2)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, input_ids, token_type_ids, attention_mask, start_positions, end_positions):
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.norm(self.words(input_ids) + self.places(places) + self.types(token_type_ids))
        x = F.dropout(x, self.dropout, self.training)
        mask = None if attention_mask is None else attention_mask[:, None, None, :].bool()
        for layer in self.layers:
            x = layer(x, mask)
        starts, ends = self.outputs(x).unbind(-1)
        loss = (F.cross_entropy(starts, start_positions) + F.cross_entropy(ends, end_positions)) / 2
        return types.SimpleNamespace(loss=loss)
