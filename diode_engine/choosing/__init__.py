"""The path of every choice: a model predicts a problem's candidates (`prediction`), a policy
chooses among them (`policy`), and the choice carries its reason (`choice`).

torch.compile, the commands, validation, the demonstration and the dashboard choose here. No module
of this package imports torch.
"""
