"""Questions to a table of a SQL engine, which pay for what comes back."""

from pianissimo.table.answers import Allowance, Amount, QuestionPlan, TableAnswer
from pianissimo.table.table import Table, TableBudget

__all__ = ["Allowance", "Amount", "QuestionPlan", "Table", "TableAnswer", "TableBudget"]
