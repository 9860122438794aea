"""What the groups of a training step leave behind, within one process and over several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fsframework.pipeline.processes import Processes

__all__ = ["Carried", "GroupSum"]


class GroupSum:
    """Sums what the groups of a step leave behind, weighted by their shares of the step.

    Gradients add up in the parameters themselves. Every group starts from the same buffers, such as
    the running statistics of BatchNorm, and their changes are averaged; those that are not floating
    point, such as the number of steps, become what one group makes of them.

    Args:
        model: that the groups go through.
        parameters: that are trained.
        device: of the loss.
        several: whether the step has more than one group, or process; the buffers of a single
            group need no average and keep every bit.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: Sequence[nn.Parameter],
        device: torch.device,
        *,
        several: bool,
    ) -> None:
        self._model, self._parameters, self._several = model, parameters, several
        self._start = {name: buffer.clone() for name, buffer in self._buffers().items()}
        self._change = {
            name: torch.zeros_like(start)
            for name, start in self._start.items()
            if start.is_floating_point()
        }
        self._counted: dict[str, Tensor] = {}
        self.loss = torch.zeros((), device=device)

    def _buffers(self) -> dict[str, Tensor]:
        return dict(self._model.named_buffers()) if self._several else {}

    @torch.no_grad()
    def add(self, loss: Tensor, share: float) -> None:
        """Add a group after its gradient has been computed."""
        self.loss = self.loss + share * loss
        for name, buffer in self._buffers().items():
            if name in self._change:
                self._change[name] += share * (buffer - self._start[name])
            else:
                self._counted[name] = buffer.clone()
            buffer.copy_(self._start[name])

    @torch.no_grad()
    def exchange(self, processes: Processes) -> None:
        """Add the sums of the other processes, in one message."""
        gradients = [parameter.grad for parameter in self._parameters]
        tensors = [
            self.loss,
            # A parameter that no group uses keeps no gradient, so that its optimiser skips it.
            torch.tensor([float(g is not None) for g in gradients], device=self.loss.device),
            *(torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters),
            *self._change.values(),
        ]
        dtype = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
        flat = processes.total(torch.cat([t.reshape(-1).to(dtype) for t in tensors]))
        loss, used, *parts = torch.split(flat, [t.numel() for t in tensors])
        self.loss = loss.reshape(())
        for parameter, is_used, part in zip(self._parameters, used.tolist(), parts, strict=False):
            if is_used:
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
                parameter.grad.copy_(part.reshape(parameter.shape))
        for change, part in zip(self._change.values(), parts[len(gradients) :], strict=True):
            change.copy_(part.reshape(change.shape))

    @torch.no_grad()
    def finish(self) -> Tensor:
        """Set the buffers to their new values, and return the loss of the step."""
        for name, buffer in self._buffers().items():
            if name in self._change:
                buffer += self._change[name]
            elif name in self._counted:
                buffer.copy_(self._counted[name])
        return self.loss


class Carried:
    """Joins what the groups of a step leave for ``FewShotMethod.after_step``, in their order.

    Args:
        groups: of the step.
        device: of the tensors.
    """

    def __init__(self, groups: int, device: torch.device) -> None:
        self._groups, self._device = groups, device
        self._left: dict[int, dict[str, Tensor]] = {}

    def add(self, group: int, left: Mapping[str, Tensor]) -> None:
        """Add what a group has left."""
        self._left[group] = {name: tensor.detach() for name, tensor in left.items()}

    def joined(self, processes: Processes) -> dict[str, Tensor]:
        """Return the rows of all groups, of all processes, by name; equal in every process."""
        if processes.size == 1:
            names = self._left[0]
            return {n: torch.cat([self._left[g][n] for g in sorted(self._left)]) for n in names}
        # Process 0 has the first group, so it knows what every group leaves.
        known = {n: (t.shape[1:], t.dtype) for n, t in self._left.get(0, {}).items()}
        return {
            name: self._exchanged(name, shape, dtype, processes)
            for name, (shape, dtype) in processes.shared(known).items()
        }

    def _exchanged(
        self, name: str, shape: torch.Size, dtype: torch.dtype, processes: Processes
    ) -> Tensor:
        rows = torch.zeros(self._groups, dtype=torch.int64, device=self._device)
        for group, left in self._left.items():
            rows[group] = len(left[name])
        counts = processes.total(rows).tolist()
        parts = [torch.zeros(count, *shape, dtype=dtype, device=self._device) for count in counts]
        for group, left in self._left.items():
            parts[group] = left[name].to(self._device)
        return processes.total(torch.cat(parts))
