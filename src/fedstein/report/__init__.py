"""Reports: pages in one HTML file, and figures, from run folders. Nothing here prints or exits."""

from fedstein.report.audit import write_audit
from fedstein.report.compare import Comparison, write_comparison
from fedstein.report.run import write_report
from fedstein.report.writing import Written

__all__ = ["Comparison", "Written", "write_audit", "write_comparison", "write_report"]
