"""`Connection`: how layers are joined. The one equation of this library, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from unshaken.connections.gradients import GRADIENTS, Detached, Gradient, Implicit, Phantom
from unshaken.errors import UnshakenError
from unshaken.names import lookup, nearest
from unshaken.schema import decode
from unshaken.solvers import SOLVERS, Anderson, GradientDescent, Solver

Form = Literal["auto", "layer", "increment"]
Where = Literal["layers", "sublayers"]
InnerDropout = Literal["shared", "resample", "off"]


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Which layers are joined, by which equation, and how it is solved and differentiated.

        z = h + step * [(1 - theta) * f(h) + theta * f(z)]

    with h a layer's input, z its output, and f(x) = layer(x) ("layer" form) or layer(x) - x ("increment" form).

    | model                                               | form      | theta | order |
    |-----------------------------------------------------|-----------|-------|-------|
    | the pretrained model as it is                       | increment | 0     | 1     |
    | EX-BERT                                             | layer     | 0     | 1     |
    | IM-BERT                                             | layer     | 1     | 1     |
    | implicit Euler that keeps what pre-training learned | increment | 1     | 1     |
    | Crank-Nicolson                                      | increment | 1/2   | 1     |
    | Runge-Kutta (ODE Transformer)                       | layer     | 0     | 2, 4  |

    Attributes:
        layers: "all", "4-6", "1,3,5" or a list; 1-based and inclusive, as in the paper.
        where: Around whole "layers", as the paper has it, or around their attention and feed-forward "sublayers" apart,
            each of them a layer to this equation; section 3.4 weighs that and declines it.
        form: What f is. "auto" takes the paper's "layer" where layers end in a LayerNorm, and "increment" where they
            end in a residual sum, since those carry the identity already.
        theta: 0 explicit, 1 implicit, between them a mixture.
        step: Step size of the Euler method.
        learn_step: Make the step a parameter of each connected layer.
        order: 1 for Euler; 2 and 4 for explicit Runge-Kutta.
        solver: Finds z where theta > 0.
        gradient: How gradients flow through the solution; by default what fits the solver: `Detached` for
            `GradientDescent`, `Implicit` for the others.
        inner_dropout: One dropout mask for all evaluations of a solve ("shared"), a new one for each ("resample"), or
            none but in the pass that carries gradients ("off"). By default "off" with `Implicit` and `Phantom`, which
            only need a good point to start from, and "shared" otherwise.
        mask_padding: Leave padding out of residuals. False is the paper's letter, and makes outputs depend on the
            amount of padding.

    Example:
        >>> model = connect(model, Connection(layers="4-6", solver=Anderson(steps=3)))
    """

    layers: str | int | list[int] | tuple[int, ...] = "all"
    where: Where = "layers"
    form: Form = "auto"
    theta: float = 1.0
    step: float = 1.0
    learn_step: bool = False
    order: Literal[1, 2, 4] = 1
    solver: Solver = field(default_factory=lambda: Anderson(steps=3))
    gradient: Gradient | None = None
    inner_dropout: InnerDropout | None = None
    mask_padding: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.gradient, str):  # "phantom" reads better than Phantom() on a command line
            object.__setattr__(self, "gradient", lookup("gradient mode", self.gradient, GRADIENTS)())
        for name, allowed in (("where", Where), ("form", Form), ("inner_dropout", InnerDropout)):
            value, known = getattr(self, name), get_args(allowed)
            if value not in known and not (value is None and name == "inner_dropout"):
                raise UnshakenError(f"{name} is {value!r}; {nearest(str(value), known)}")
        if not 0 <= self.theta <= 1:
            raise UnshakenError(f"theta is {self.theta}; it lies between 0 (explicit) and 1 (implicit)")
        if self.step <= 0:
            raise UnshakenError(f"step is {self.step}; a step size is above 0")
        if self.order not in (1, 2, 4):
            raise UnshakenError(f"order is {self.order}; 1 is Euler, 2 and 4 are Runge-Kutta")
        if self.order > 1 and self.theta > 0:
            raise UnshakenError(f"order {self.order} is an explicit Runge-Kutta method: set theta=0")
        if not isinstance(self.solver, Solver):
            raise UnshakenError(f"solver is {self.solver!r}; pass a solver such as Anderson(steps=3)")

    # -------------------------------------------------------------------------------------------------- the presets

    @classmethod
    def im_bert(cls, layers: str | list[int] = "all", **changes: Any) -> Connection:
        """IM-BERT as in Algorithm 1 of the paper: five steps of descent at rate 0.1, first-order gradients.

        Around layers that end in a residual sum it takes the increment form: h + layer(z) would double the state at
        every layer.
        """
        return cls(**{"layers": layers, "solver": GradientDescent(), "gradient": Detached(), **changes})

    @classmethod
    def ex_bert(cls, layers: str | list[int] = "all", **changes: Any) -> Connection:
        """EX-BERT: z = h + layer(h), the explicit relative of IM-BERT, for layers that end in a LayerNorm."""
        return cls(**{"layers": layers, "theta": 0.0, **changes})

    @classmethod
    def runge_kutta(cls, layers: str | list[int] = "all", order: Literal[2, 4] = 2, **changes: Any) -> Connection:
        """Explicit Runge-Kutta between layers, as in the ODE Transformer."""
        return cls(**{"layers": layers, "theta": 0.0, "order": order, **changes})

    @classmethod
    def crank_nicolson(cls, layers: str | list[int] = "all", **changes: Any) -> Connection:
        """Half explicit, half implicit, around the pretrained layer."""
        return cls(**{"layers": layers, "form": "increment", "theta": 0.5, **changes})

    # ------------------------------------------------------------------------------------------------------- as data

    @property
    def is_implicit(self) -> bool:
        return self.theta > 0 and self.solver.steps > 0

    @property
    def gradient_mode(self) -> Gradient:
        if self.gradient is not None:
            return self.gradient
        return Detached() if isinstance(self.solver, GradientDescent) else Implicit()

    @property
    def differentiates_twice(self) -> bool:
        return self.is_implicit and self.gradient_mode.needs_second_derivative(self.solver)

    @property
    def inner_dropout_mode(self) -> InnerDropout:
        if self.inner_dropout is not None:
            return self.inner_dropout
        return "off" if isinstance(self.gradient_mode, Phantom | Implicit) else "shared"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for config.json."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["layers"] = list(self.layers) if isinstance(self.layers, tuple) else self.layers
        values["solver"] = {"name": self.solver.name, **_finite(asdict(self.solver))}
        mode = self.gradient_mode
        values["gradient"] = {"name": mode.name, **asdict(mode)}
        if isinstance(mode, Implicit) and mode.solver is not None:
            values["gradient"]["solver"] = {"name": mode.solver.name, **_finite(asdict(mode.solver))}
        return values

    @classmethod
    def from_dict(cls, values: Any) -> Connection:
        """What `to_dict` made. It stands in a model's config.json, so every name and type is checked."""
        if not isinstance(values, dict):
            raise UnshakenError(f"the saved connection is {values!r}, not an object with its settings")
        parts = {
            "solver": _part("solver", values.get("solver"), SOLVERS),
            "gradient": _part("gradient", values.get("gradient"), GRADIENTS),
        }
        return decode(cls, {**values, **parts}, "the saved connection", written_by_hand=True)


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Infinity has no JSON form; as text it reads back by `float`."""
    return {key: "inf" if value == float("inf") else value for key, value in values.items()}


def _part(field: str, values: Any, kinds: Mapping[str, type[Any]]) -> Any:
    """The solver or gradient mode of a saved connection, and the solver that a gradient mode may hold."""
    if not isinstance(values, dict) or not isinstance(values.get("name"), str):
        raise UnshakenError(f"the saved connection's {field} is {values!r}, not an object with a name")
    kind = lookup(field, values["name"], kinds)
    numbers = {item.name for item in fields(kind) if item.type == "float"}
    infinite = {key: math.inf for key, value in values.items() if value == "inf" and key in numbers}
    options = {key: value for key, value in values.items() if key != "name" and key not in infinite}
    if options.get("solver") is not None:
        options["solver"] = _part("solver", options["solver"], SOLVERS)
    return replace(decode(kind, options, f"the saved connection's {field}", written_by_hand=True), **infinite)
