"""`unshaken doctor`: whether and how a model's layers can be connected, measured layer by layer."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshaken.cli import options
from unshaken.cli.known import named
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.connections.stability import ResidualCurve

NOISY = 1e-4  # of a logit: rounding of a float32 pass leaves a thousandth of that
TEXTS = (
    "A film of rare charm, told with wit and played to perfection.",
    "The plot is thin, the jokes are older than the cast, and nobody seems to care.",
    "It's hard to say whether the ending redeems two hours of slow, pretty pictures.",
    "Not bad.",
)


def doctor(
    model: Annotated[str, typer.Argument(help="Folder or hub name; 'minilm' is the model of the demo extra.")],
    form: Annotated[str, named("form", help="Equation to examine: auto, layer or increment.")] = "auto",
    where: Annotated[str, named("where", help="What is connected: layers, or their sublayers apart.")] = "layers",
    target: Annotated[float, typer.Option(min=0, help="Relative residual the recommended solver must reach.")] = 0.05,
    out: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder for figures and the numbers as JSON.")
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="Texts to measure on; four short ones otherwise.")] = None,
) -> None:
    """Examine the layers of a model, and recommend a solver.

    Measures residuals, spectrum and perturbation growth by layer, gradients, noise and cost.
    """
    options.require_base(model)
    from unshaken.connections import Connection, check
    from unshaken.connections.quality import gradient_quality, noise
    from unshaken.connections.stability import (
        lipschitz_estimates,
        perturbation_growth,
        recommended_solver,
        residual_curves,
        rightmost_eigenvalues,
    )
    from unshaken.console import Console, terminal_table
    from unshaken.solvers import GradientDescent
    from unshaken.training.base_model import ensure_padding

    console = Console()
    network, tokenizer = _load(model)
    examined: dict[str, Any] = {"form": form, "where": where}
    connection = Connection(**examined)
    problems = check(network, connection)
    if problems:
        raise UnshakenError("; ".join(f"{reason} (cure: {cure})" for reason, cure in problems))
    ensure_padding(tokenizer, network, model)
    batch = dict(tokenizer(list(text or TEXTS), padding=True, truncation=True, return_tensors="pt"))
    with console.status("measuring residuals"):
        curves = residual_curves(network, batch, connection)
    with console.status("measuring the spectrum of each layer"):
        steepness = lipschitz_estimates(network, batch, where=connection.where)
        rightmost = rightmost_eigenvalues(network, batch, where=connection.where)
    solver, reached = recommended_solver(curves, target)
    kinds = {
        "plain": None,
        "explicit (EX-BERT)": Connection.ex_bert(**examined),
        "descent T=5 (IM-BERT)": Connection.im_bert(**examined),
        f"Anderson {solver.steps}": Connection(**examined, solver=solver),
    }
    kinds = {name: kind for name, kind in kinds.items() if kind is None or not check(network, kind)}
    with console.status("measuring perturbation growth"):
        growth = perturbation_growth(network, batch, kinds)

    kinds_of_noise = {
        **kinds,
        "descent T=15": Connection.im_bert(**examined, solver=GradientDescent(steps=15)),
        "descent T=15, polyak": Connection.im_bert(**examined, solver=GradientDescent(steps=15, safeguard="polyak")),
    }
    with console.status("measuring noise"):
        noises = {name: noise(network, batch, kind) for name, kind in kinds_of_noise.items()}
    with console.status("measuring gradients"):
        qualities = gradient_quality(network, batch, connection)

    console.print(_residual_table(curves, steepness, rightmost))
    title = "Growth of a 1% perturbation of the embeddings, relative, by hidden state"
    states = map(str, range(len(growth[0].ratios)))
    grown = [(row.name, *(f"{ratio:.2f}" for ratio in row.ratios)) for row in growth]
    console.print(terminal_table(title, ("connection", *states), grown))
    title = "Noise: texts alone and in a batch, largest difference of logits"
    told = {name: "scores depend on the batch" if size > NOISY else "" for name, size in noises.items()}
    noisy = [(name, f"{size:.1e}", told[name]) for name, size in noises.items()]
    console.print(terminal_table(title, ("connection", "difference", ""), noisy, left=("",)))
    title = "Gradients, Anderson 3: cosine\nwith a converged backward solve"
    cosines = [(row.mode, f"{row.weights:.2f}", f"{row.words:.2f}") for row in qualities]
    console.print(terminal_table(title, ("mode", "weights", "words"), cosines))
    costs = [(f"descent T={n}", str(n + 2), str(n), f"{2 * n + 2}x", f"{n + 1}x") for n in (1, 5, 10, 15)]
    costs += [(f"Anderson {n}, implicit", str(n + 1), "0", f"{n + 1}x", "") for n in (1, 2, 3, 5)]
    headings = ("solver", "evaluations", "VJPs", "inference", "the paper's count")
    title = "True cost of one layer, in forward passes of it (a VJP counts as one)"
    console.print(terminal_table(title, headings, costs))
    wanted = "" if where == "layers" else f'where="{where}", '
    wanted += "" if form == "auto" else f'form="{form}", '
    console.print(
        f"Recommended: Connection({wanted}solver=Anderson(steps={solver.steps})), worst residual {reached:.3f}"
    )
    if reached > target:
        console.print(f"No setting tried reaches {target:g}; look at the layers with the largest residual.")
    if out is not None:
        measured = {"rightmost": rightmost, "noise": noises, "gradients": [asdict(row) for row in qualities]}
        _save(out, curves, {"lipschitz": steepness, **measured}, growth)
        console.print(f"Figures and numbers: {out}", markup=False)


def _load(name: str) -> tuple[Any, Any]:
    from unshaken.matching import check_vocabulary
    from unshaken.pretrained import CLASSIFIER, load
    from unshaken.training.base_model import resolve_model

    source = resolve_model(name)
    model, tokenizer = load(CLASSIFIER, source, new_head=True).float(), load("AutoTokenizer", source)
    check_vocabulary(tokenizer, model, name)
    return model, tokenizer


def _residual_table(curves: list[ResidualCurve], steepness: dict[str, float], rightmost: dict[str, float]) -> Any:
    """Worst residual of each layer or sub-layer, for the settings people use."""
    from unshaken.console import terminal_table

    columns = [
        ("gradient-descent", 5, "GD\nT=5"),
        ("gradient-descent", 15, "GD\nT=15"),
        ("fixed-point", 3, "Pic.\n3"),
        ("anderson", 3, "And.\n3"),
        ("anderson", 5, "And.\n5"),
        ("anderson", 8, "And.\n8"),
        ("broyden", 5, "Broy.\n5"),
        ("newton-krylov", 2, "New-\nton"),
    ]
    headings = ("layer", "Lip-\nschitz", "max\nRe", *(title for _, _, title in columns))
    found = {(curve.layer, curve.solver): dict(zip(curve.steps, curve.residuals, strict=True)) for curve in curves}
    rows = []
    for layer, sigma in steepness.items():
        cells = [f"{found[layer, solver][count]:.3f}" for solver, count, _ in columns]
        rows.append((layer, f"{sigma:.2f}", f"{rightmost[layer]:.2f}", *cells))
    title = "Relative residual of each layer's equation, worst text"
    return terminal_table(title, headings, rows, padding=(0, 1, 0, 0))


def _save(out: Path, curves: list[ResidualCurve], measured: dict[str, Any], growth: Any) -> None:
    from unshaken.files import write_json
    from unshaken.reports.figures import layer_profile, save_figure
    from unshaken.reports.stability_regions import stability_regions

    numbers = {"residuals": [asdict(curve) for curve in curves], **measured}
    write_json(out / "doctor.json", {**numbers, "growth": [asdict(row) for row in growth]})
    shown = {("gradient-descent", 5): "descent T=5", ("gradient-descent", 15): "descent T=15"}
    shown |= {("anderson", steps): f"Anderson {steps}" for steps in (3, 5)}
    residuals = {
        title: [
            dict(zip(curve.steps, curve.residuals, strict=True))[count] for curve in curves if curve.solver == solver
        ]
        for (solver, count), title in shown.items()
    }
    save_figure(layer_profile(residuals, {row.name: row.ratios for row in growth}), out / "layers")
    save_figure(stability_regions(), out / "stability-regions")
