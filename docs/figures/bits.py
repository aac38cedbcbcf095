"""Draw docs/figures/bits.png: where the bits of an upload go, for every sharing. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from fedstein.coding import Contract, plan

DIM, PARTICLES = 79_510, 10
COLOURS = {"entries": "#0072B2", "positions": "#E69F00", "overhead": "#444444"}

if __name__ == "__main__":
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 2.7), layout="constrained", sharey=True)
    for axis, times in zip(axes, (1.0, 0.5), strict=True):
        for row, groups in enumerate((1, 2, 5, 10)):
            cost = plan(Contract(DIM, PARTICLES, groups, 5, int(times * DIM)))
            left = 0
            parts = {"entries": cost.entry_bits, "positions": cost.position_bits, "overhead": cost.overhead_bits}
            for name, bits in parts.items():
                axis.barh(row, bits / 1000, left=left / 1000, color=COLOURS[name], label=name if row == 0 else None)
                left += bits
            axis.text(left / 1000, row, f"  {cost.kept:,} kept", va="center")
        axis.axvline(times * DIM / 1000, color="black", lw=1, ls=":")
        axis.set_title(f"budget {times:g} d = {int(times * DIM):,} bits", loc="left", fontsize=11)
        axis.set_xlabel("thousand bits")
        axis.set_xlim(0, times * DIM / 1000 * 1.28)
    axes[0].set_yticks(range(4), ["sharing 1", "1/2", "1/5", "1/10"])
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(Path(__file__).with_name("bits.png"), dpi=150)
