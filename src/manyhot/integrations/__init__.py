"""manyhot inside other frameworks: one module (or package) a framework, imported only when asked for.

``manyhot.integrations.registry.INTEGRATIONS`` lists them with the extra that installs each. ``import manyhot`` loads none.
"""
