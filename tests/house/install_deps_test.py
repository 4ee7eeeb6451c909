"""tools/install_deps on systems that it was not run on: stand-ins for dpkg-query, apt-get, apt-cache, id and sudo."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile

import repository

TOOL = os.path.join(repository.ROOT, "tools", "install_deps")
NEEDED = ("bash", "sh", "sed", "awk", "comm", "sort", "tr", "env", "dirname", "cat", "grep")


class InstallDeps(repository.HouseTest):
    def setUp(self):
        self.path = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.path)
        for name in NEEDED:
            os.symlink(shutil.which(name), os.path.join(self.path, name))
        self.log = os.path.join(self.path, "log")
        self.packages = subprocess.run([TOOL, "--list"], capture_output=True, text=True, check=True).stdout.split()

    def stand_in(self, name, script):
        path = os.path.join(self.path, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def debian(self, installed, user=0, lists=True, install_status=0):
        self.stand_in("dpkg-query", "".join(f"echo {package} installed\n" for package in installed))
        self.stand_in("apt-get", f'echo "apt-get $*" >> {self.log}; case "$*" in *update*) touch {self.path}/lists ;; '
                                 f'*) exit {install_status} ;; esac')
        self.stand_in("apt-cache", f'[ -e {self.path}/lists ] && echo "  Candidate: 1.0"; exit 0')
        self.stand_in("id", f"echo {user}")
        if lists:
            open(os.path.join(self.path, "lists"), "w", encoding="ascii").close()

    def run_tool(self, *arguments):
        done = subprocess.run([TOOL, *arguments], capture_output=True, text=True, env={"PATH": self.path}, check=False)
        calls = []
        if os.path.exists(self.log):
            with open(self.log, encoding="ascii") as file:
                calls = file.read().splitlines()
        return done.returncode, done.stderr, calls

    def test_nothing_missing_asks_nobody(self):
        self.debian(self.packages)
        self.assertEqual(self.run_tool(), (0, "", []))
        self.assertEqual(self.run_tool("--check"), (0, "", []))

    def test_what_is_missing_is_installed_and_nothing_else(self):
        self.debian(self.packages[2:])
        status, said, calls = self.run_tool()
        self.assertEqual(status, 0, said)
        self.assertEqual(len(calls), 1, calls)
        self.assertEqual(sorted(calls[0].split()[-2:]), sorted(self.packages[:2]))

    def test_check_installs_nothing(self):
        self.debian(self.packages[1:])
        status, said, calls = self.run_tool("--check")
        self.assertEqual((status, calls), (1, []))
        self.assertIn(self.packages[0], said)

    def test_without_package_lists_they_are_fetched_first(self):
        self.debian([], lists=False)
        status, _, calls = self.run_tool()
        self.assertEqual(status, 0)
        self.assertEqual([call.split()[1] for call in calls], ["update", "install"])

    def test_a_failed_installation_is_tried_once_more_and_said(self):
        self.debian([], install_status=100)
        status, said, calls = self.run_tool()
        self.assertEqual(status, 1)
        self.assertEqual([call.split()[1] for call in calls], ["install", "update", "install"])
        self.assertIn("could not install", said)

    def test_another_user_takes_sudo(self):
        self.debian(self.packages[1:], user=1000)
        self.stand_in("sudo", f'echo "sudo $*" >> {self.log}; "$@"')
        status, said, calls = self.run_tool()
        self.assertEqual(status, 0, said)
        self.assertTrue(calls[0].startswith("sudo "), calls)

    def test_another_user_without_sudo_gets_the_command(self):
        self.debian(self.packages[1:], user=1000)
        status, said, calls = self.run_tool()
        self.assertEqual((status, calls), (1, []))
        self.assertIn(f"apt-get install {self.packages[0]}", said)

    def test_a_system_without_apt_gets_a_clear_line(self):
        status, said, _ = self.run_tool()
        self.assertEqual(status, 3)
        self.assertEqual(len(said.splitlines()), 1)
        self.assertIn(self.packages[0], said)

    def test_an_unknown_option(self):
        status, said, _ = self.run_tool("--lst")
        self.assertEqual(status, 2)
        self.assertIn("--lst", said)


if __name__ == "__main__":
    sys.exit(repository.main())
