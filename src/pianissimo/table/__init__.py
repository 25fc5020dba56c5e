"""Questions to a table of a SQL engine, which pay for what comes back."""

from pianissimo.table.allowance import Amount, StepAllowance, TableBudget
from pianissimo.table.questions import QuestionPlan
from pianissimo.table.table import Table, TableAnswer, TableLedger

__all__ = ["Amount", "QuestionPlan", "StepAllowance", "Table", "TableAnswer", "TableBudget", "TableLedger"]
