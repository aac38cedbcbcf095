"""`fedstein plan`: how many entries a budget is guaranteed to carry."""

from __future__ import annotations

from typing import Annotated

import typer

from fedstein.cli.output import JsonOption, print_json, ready, say, show

__all__ = ["plan"]


def plan(
    dim: Annotated[int, typer.Option(min=1, help="d, parameters of the model.")],
    particles: Annotated[int, typer.Option(min=1, help="N_p.")] = 10,
    budget: Annotated[str, typer.Option(help="R_u: bits (79510), multiples of d (0.5d) or bytes (10kB).")] = "1.0d",
    bits_per_entry: Annotated[int, typer.Option(min=2, max=16, help="N_b.")] = 5,
    json: JsonOption = False,
) -> None:
    """Show, for every valid sharing, how many entries fit into a budget whatever the update is."""
    from rich.table import Table

    from fedstein.coding import letter_bits
    from fedstein.protocol.planning import plans_for

    ready()
    plans, refusals = plans_for(dim, particles, budget, bits_per_entry)
    budget_bits = plans[0][0].budget_bits
    if json:
        rows = [
            {
                "sharing": 1 / each.groups,
                "groups": each.groups,
                "kept": each.kept,
                "bits": each.bits,
                "position_bits": each.position_bits,
                "entry_bits": each.entry_bits,
                "overhead_bits": each.overhead_bits,
                "bound_bits": each.bound_bits,
                "letter_bits": letter_bits(contract, each.kept),
            }
            for contract, each in plans
        ]
        print_json({"dim": dim, "particles": particles, "budget_bits": budget_bits, "plans": rows})
        return
    title = f"{budget_bits:,} bits for {particles} particles of {dim:,} parameters, {bits_per_entry} bits an entry"
    table = Table(title=title, title_justify="left")
    for name in ("sharing", "kept", "r", "bits", "positions", "entries", "overhead", "letter"):
        table.add_column(name, justify="right")
    for contract, each in plans:
        cells = (each.bits, each.position_bits, each.entry_bits, each.overhead_bits)
        table.add_row(
            "1" if each.groups == 1 else f"1/{each.groups}",
            f"{each.kept:,}",
            f"{each.kept / dim:.4%}",
            *(f"{cell:,}" for cell in cells),
            f"{letter_bits(contract, each.kept):,.0f}",
        )
    show(table)
    say("bits: the most that any update costs, in whole bytes. letter: the letter's R_u, with no header and no scale.")
    for refusal in refusals:
        say(str(refusal))
