"""ARFF files with MULAN labels."""
