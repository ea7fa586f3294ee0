"""The Failures page: which requests failed, were limited, refused or corrected, over time and one by one."""
