"""The derivative of a solution by the implicit function theorem: a linear equation, solved in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.solvers import Solver
from unshaken.solvers.base import Course, Map, computed_in, looking_later

Equation = Callable[[Tensor, Tensor], Tensor]  # (base, z) -> g(z)


def kept() -> Any:
    """What is saved for backward inside stays as it is, also where a checkpoint asks to drop it.

    Without `detach`, an operation that saves its own output would hold itself alive, and memory would grow.
    """
    return torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.detach(), lambda saved: saved)


def differentiate_once(g: Equation, base: Tensor, z: Tensor, solver: Solver) -> Tensor:
    """g(base, z) at a solution z, with the first derivative of the solution itself, by products on one graph of g.

    g is to be `base` plus a function of z. Where the solver can be left before its last step, the pass to the weights
    makes the product of that step: weights get the u of the step before, and `base`, with all layers below, the last.
    """
    if not torch.is_grad_enabled():
        return g(base, z)
    # A checkpoint drops what a graph saves and would run the layer again for every product. There the products get a
    # graph of their own, which is made in backward and dropped after it.
    is_checkpointed = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    last_step = None
    if base.requires_grad:
        last_step = _LastStep()
        gate: Callable[[Tensor, Tensor, _LastStep], tuple[Tensor, Tensor]] = _Gate.apply
        base, point = gate(base, z.detach(), last_step)
    else:
        point = z.detach().requires_grad_()
        # The pass to the weights comes by here too, and nobody asks for what it leaves.
        point.register_post_accumulate_grad_hook(_forget)  # type: ignore[no-untyped-call]
    image = g(base, point)
    if last_step is None and not _has_other_leaves(image, point):
        return image.detach()
    operator = _InverseOperator(point, None if is_checkpointed else image, solver, lambda z: g(base, z), last_step)
    apply: Callable[[Tensor, _InverseOperator, bool], Tensor] = _ApplyInverse.apply
    return apply(image, operator, True)


def differentiate_repeatedly(g: Map, z: Tensor, solver: Solver, order: int = 1) -> Tensor:
    """g(z) at a solution z, with derivatives of the solution itself, exact up to `order`.

    z1 = c + A^-1 (g(c) - c) with the constant c = z and A = I - J is a Newton step: its value is the solution, its
    first derivative the implicit one. Each further step from there makes one more derivative exact.
    """
    image = g(z.detach())
    if not (torch.is_grad_enabled() and image.requires_grad):
        return image
    point = z.detach().requires_grad_()
    with kept():
        operator = _InverseOperator(point, g(point), solver, g)
    apply: Callable[[Tensor, _InverseOperator, bool], Tensor] = _ApplyInverse.apply
    result = apply(image, operator, False)
    for _ in range(order - 1):
        result = result + apply(g(result) - result, operator, False)
    return result


def _forget(leaf: Tensor) -> None:
    leaf.grad = None


def _has_other_leaves(image: Tensor, point: Tensor) -> bool:
    """Whether anything but `point` is to get a gradient from `image`; false where weights and input are frozen."""
    seen: set[Any] = set()
    nodes: list[Any] = [image.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and leaf is not point:
            return True
        nodes += [parent for parent, _ in node.next_functions]
    return False


@dataclass(frozen=True)
class _InverseOperator:
    """(I - J)^-1 with J the Jacobian of g at `point`, applied from the left in backward passes."""

    point: Tensor
    at_point: Tensor | None  # g(point), with its graph; None: to be made when it is needed
    solver: Solver
    g: Map
    last_step: _LastStep | None = None  # None: every product is made here

    def image(self) -> Tensor:
        if self.at_point is not None:
            return self.at_point
        with torch.enable_grad(), kept():
            return self.g(self.point)

    def pull(self, image: Tensor, u: Tensor, v: Tensor, *, differentiable: bool) -> Tensor:
        """J^T u + v."""
        options = {"create_graph": True} if differentiable else {"retain_graph": True}
        return torch.autograd.grad(image, self.point, u, **options)[0] + v

    def solve(self, image: Tensor, v: Tensor) -> Tensor:
        """The u of u = J^T u + v, but for the last step where that is left to the gate."""

        def g(u: Tensor) -> Tensor:
            return self.pull(image, u, v, differentiable=False)

        course = None if self.last_step is None else self.solver.course(v)
        if course is None or self.last_step is None:
            return self.solver(g, v).z
        for _ in range(self.solver.steps - 1):
            course.take(g(course.z))
        self.last_step.course, self.last_step.v = course, v
        return course.trusted()


@dataclass
class _LastStep:
    """A backward solve that waits for its last product. It knows no graph, which would hold itself alive by it."""

    course: Course | None = None
    v: Tensor | None = None


class _Gate(torch.autograd.Function):
    """The identity in value. Backward gets u for `base` and J^T u for `z` together, and takes the last step by them."""

    @staticmethod
    def forward(ctx: Any, base: Tensor, z: Tensor, last_step: _LastStep) -> tuple[Tensor, Tensor]:
        ctx.last_step = last_step
        return base.view_as(base), z.view_as(z)

    @staticmethod
    def backward(ctx: Any, u: Tensor, pulled: Tensor) -> Any:
        course, v = ctx.last_step.course, ctx.last_step.v
        ctx.last_step.course = ctx.last_step.v = None
        if course is None:
            return u, None, None
        with torch.no_grad(), torch.autocast(u.device.type, enabled=False):
            course.take(pulled + v)
            last = course.trusted()
        # Where somebody differentiates this pass, u carries what refuses it.
        return (u + (last - u).detach() if torch.is_grad_enabled() else last), None, None


class _ApplyInverse(torch.autograd.Function):
    """The identity in value; backward turns v into the u of u = J^T u + v."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operator: _InverseOperator, only_once: bool) -> Tensor:
        ctx.operator, ctx.only_once = operator, only_once
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        operator = ctx.operator
        # Defences run backward in the middle of a step, where autocast would round the solver's own products.
        with torch.autocast(v.device.type, enabled=False):
            # Nobody could run a backward pass again, so nobody looks whether it diverged: an example that ran away
            # gets the start v of a course, which is the plain gradient, and of other solves the best iterate.
            # Products are linear, so that differences may reach as far as the least precision asks for.
            with torch.no_grad(), looking_later(), computed_in(torch.bfloat16):
                image = operator.image()
                u = operator.solve(image, v.detach())
            if torch.is_grad_enabled() and ctx.only_once:
                refuse: Callable[[Tensor, Tensor, Tensor], Tensor] = _RefuseSecondDerivative.apply
                u = refuse(u, v, image)
            elif torch.is_grad_enabled():  # somebody differentiates this backward pass, and the solve with it
                u = differentiate_repeatedly(
                    lambda u: operator.pull(image, u, v, differentiable=True), u, operator.solver
                )
        return u, None, None


class _RefuseSecondDerivative(torch.autograd.Function):
    """The identity, which cannot be differentiated: the solve behind `u` was not recorded.

    It hangs on all that `u` depends on, since autograd passes by what does not lead to the inputs it is asked for.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, image: Tensor) -> Tensor:
        return u.view_as(u)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        raise UnshakenError(
            "Implicit(order=1) has no second derivative: connect with gradient=Implicit(order=2) to differentiate twice"
        )
