"""Layers that keep statistics of batches: refused in what is trained, and the way out of it."""

from __future__ import annotations

import copy

from torch import nn

from fedstein.errors import UserError

__all__ = ["frozen_batch_norms", "refuse_batch_norm", "to_group_norm"]

_GROUPS = 8
_BatchNorm = nn.modules.batchnorm._BatchNorm


def refuse_batch_norm(module: nn.Module) -> None:
    """Refuse batch norm whose statistics would have to follow what is trained, or that has none but the batch's own."""
    for name, part in module.named_modules():
        if not isinstance(part, _BatchNorm):
            continue
        if part.running_mean is None or any(p.requires_grad for p in part.parameters()):
            raise UserError(
                f"The 'module' must not keep batch statistics in what is trained: '{name}' is a "
                f"{type(part).__name__}, and a particle is a parameter vector and nothing else. "
                "Use fedstein.to_group_norm(module), or freeze it (requires_grad_(False)): its statistics are then "
                "constants."
            )


def frozen_batch_norms(module: nn.Module) -> list[str]:
    """The names of those that are left."""
    return [name for name, part in module.named_modules() if isinstance(part, _BatchNorm)]


def to_group_norm(module: nn.Module) -> nn.Module:
    """A copy of `module` with `nn.GroupNorm` in the place of every batch norm, with its scales and shifts.

    There are about eight groups: the number nearest to that which divides the channels and leaves two of them or more
    in a group (four after dense layers, where a channel may be a single number). Batch norm whose own parameters are
    frozen stays as it is: its statistics are constants, and what was trained with them needs them.

    >>> to_group_norm(nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32)))[1].num_groups
    8
    """
    if not isinstance(module, nn.Module):
        raise UserError(f"The 'module' must be a torch.nn.Module. Got {type(module).__name__} instead.")
    whole = copy.deepcopy(module)
    made: dict[nn.Module, nn.GroupNorm] = {}  # one that is in two places stays one
    for part in list(whole.modules()):
        for name, child in list(part._modules.items()):
            if isinstance(child, _BatchNorm) and not _is_frozen(child):
                if child not in made:
                    made[child] = _group_norm(child)
                part._modules[name] = made[child]
    return _group_norm(whole) if isinstance(whole, _BatchNorm) and not _is_frozen(whole) else whole


def _is_frozen(norm: _BatchNorm) -> bool:
    own = list(norm.parameters())
    return norm.running_mean is not None and bool(own) and not any(p.requires_grad for p in own)


def _group_norm(old: _BatchNorm) -> nn.GroupNorm:
    channels, least = old.num_features, 4 if isinstance(old, nn.BatchNorm1d) else 2
    numbers = [n for n in range(1, channels + 1) if channels % n == 0 and channels // n >= least] or [1]
    groups = min(numbers, key=lambda n: abs(n - _GROUPS))
    new = nn.GroupNorm(groups, channels, old.eps, old.affine).train(old.training)
    for mine, his in ((new.weight, old.weight), (new.bias, old.bias)):
        if his is not None:
            mine.data = his.detach().clone()
            mine.requires_grad_(his.requires_grad)
    return new
