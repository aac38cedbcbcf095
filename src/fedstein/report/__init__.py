"""Reports: pages in one HTML file, and figures, from run folders."""

from fedstein.report.audit import write_audit
from fedstein.report.compare import write_comparison
from fedstein.report.run import write_report

__all__ = ["write_audit", "write_comparison", "write_report"]
