"""Losses that several methods share. None branches on a tensor's value, so all work in vmap."""

import torch
import torch.nn.functional as F
from torch import Tensor


def distil(student: Tensor, teacher: Tensor, tau: float = 1.0) -> Tensor:
    """τ² KL(teacher ‖ student) of the predictions at temperature τ, averaged over the batch."""
    log_s = F.log_softmax(student / tau, dim=-1)
    log_q = F.log_softmax(teacher / tau, dim=-1)
    return tau**2 * F.kl_div(log_s, log_q, reduction="batchmean", log_target=True)


def drop_true(logits: Tensor, y: Tensor) -> Tensor:
    """The logits of all classes but the true one: one column fewer."""
    position = torch.arange(logits.shape[-1] - 1, device=y.device)
    return logits.gather(1, position + (position >= y[:, None]))
