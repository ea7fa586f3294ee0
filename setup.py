"""What pyproject.toml cannot say: of the package that only leads Streamlit to our components, no page is installed."""

from setuptools import setup
from setuptools.command.build_py import build_py


class WithoutPagesTwice(build_py):
    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [each for each in found if package != "conductor_inspector" or each[1] == "__init__"]


setup(cmdclass={"build_py": WithoutPagesTwice})
