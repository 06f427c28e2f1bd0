"""manyhot inside other frameworks: one module or package for each, imported only on request.

``manyhot.integrations.registry.INTEGRATIONS`` lists them with the extra that installs each. ``import manyhot`` loads none.
"""
