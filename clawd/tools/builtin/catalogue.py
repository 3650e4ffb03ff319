"""The built-in tools that touch the operating system, as a list."""

from clawd.tools.base import Tool
from clawd.tools.builtin import files
from clawd.tools.builtin.calculator import CalculatorTool, TimeTool
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.builtin.evaluate import EvaluateTool
from clawd.tools.builtin.fs_ops import FsOpsTool
from clawd.tools.builtin.pdf_extract import PdfExtractTool
from clawd.tools.builtin.plan import PlanTool
from clawd.tools.builtin.render import RenderTool
from clawd.tools.builtin.search_files import GlobTool, GrepTool
from clawd.tools.builtin.shell import JobTool, ShellTool
from clawd.tools.builtin.undo import UndoTool
from clawd.tools.builtin.user import AskUserTool, OpenUrlTool
from clawd.tools.builtin.web import HttpTool, WebFetchTool, WebSearchTool


def builtin_tools(deps: BuiltinDeps) -> list[Tool]:
    """Return one instance of each."""
    return [
        TimeTool(),
        CalculatorTool(),
        AskUserTool(),
        OpenUrlTool(),
        files.FileListTool(deps),
        files.FileReadTool(deps),
        files.FileWriteTool(deps),
        files.FileEditTool(deps),
        files.FileAppendTool(deps),
        FsOpsTool(deps),
        UndoTool(deps),
        GlobTool(deps),
        GrepTool(deps),
        files.CheckPathTool(deps),
        files.CwdTool(),
        files.WorkspaceTool(deps),
        ShellTool(deps),
        JobTool(deps),
        EvaluateTool(deps),
        HttpTool(deps),
        WebSearchTool(deps),
        WebFetchTool(deps),
        PdfExtractTool(deps),
        PlanTool(deps),
        RenderTool(deps),
    ]
