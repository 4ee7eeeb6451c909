"""Whatever is done to the files of a folder: no crash, no wrong answer, a reason, and nothing of others touched
(invariant 8, DISK-8, B-6)."""

import os
import random
import re
import shutil

import harness
import index_file

FOREIGN = "conv-00000000000000ff.sess"


def flip(path, position, mask=0x40):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ mask]))


def cut(path, length):
    with open(path, "r+b") as file:
        file.truncate(length)


class DamagedFiles(harness.StrataTest):
    @classmethod
    def setUpClass(cls):
        """A folder with three conversations, made once; each test damages a copy."""
        os.makedirs(harness.FOLDERS, exist_ok=True)
        cls.template = os.path.join(harness.FOLDERS, "damaged_files_template")
        shutil.rmtree(cls.template, ignore_errors=True)
        cls.addClassCleanup(shutil.rmtree, cls.template, ignore_errors=True)
        cls.model = harness.model_options("hybrid")
        cls.uncached = harness.strata_process.Server(harness.BINARY, [*cls.model, "--conversation-cache-mib", 0]).start()
        cls.addClassCleanup(cls.uncached.kill)
        cls.first_messages = {}
        with harness.strata_process.Server(harness.BINARY, [*cls.model, *harness.cache_options(cls.template)]) as server:
            for number in range(3):
                conversation = harness.Conversation(f"damaged {number}")
                conversation.hear(server.complete("/v1/chat/completions", conversation.next_request()))
                cls.first_messages[number] = conversation.messages
        cls.indexes = index_file.published(cls.template)
        assert len(cls.indexes) == 3, os.listdir(cls.template)

    def copy(self):
        folder = self.folder()
        shutil.copytree(self.template, folder, dirs_exist_ok=True, copy_function=shutil.copy2)
        return folder

    def conversations(self):
        for number, messages in self.first_messages.items():
            conversation = harness.Conversation(f"damaged {number}")
            conversation._turn = 1  # the first turn was asked when the template was made
            conversation.messages = list(messages)
            yield conversation

    def go_on(self, folder, expect_reused=None):
        """Starts on the folder and continues all three, each answer compared. Returns (answers, what the server said)."""
        server = self.server(self.model, harness.cache_options(folder))
        answers = [self.compare(server, self.uncached, conversation) for conversation in self.conversations()]
        if expect_reused is not None:
            self.assertEqual(sum(answer.tier == "disk" for answer in answers), expect_reused,
                             f"{[a.timings for a in answers]}\n{server.output.text()}")
        self.assertEqual(server.stop(), 0, server.output.text())
        return answers, server.output.text()

    def pick(self):
        identity = sorted(self.indexes)[0]
        return identity, self.indexes[identity], f"conv-{identity}.idx", f"conv-{identity}.sess"

    def test_the_undamaged_copy_is_taken_in(self):
        """The control for all that follows."""
        self.go_on(self.copy(), expect_reused=3)

    def test_a_flipped_bit_in_the_head_of_an_index(self):
        _, index, idx, _ = self.pick()
        for position in (16, 33, 60, 112, index_file.FIXED_BYTES + 3, index.head_bytes - 5):
            with self.subTest(position=position):
                folder = self.copy()
                flip(os.path.join(folder, idx), position)
                _, said = self.go_on(folder, expect_reused=2)
                self.assertRegex(said, r"refused 1 \(.*corrupt")

    def test_another_version_of_an_index(self):
        _, _, idx, _ = self.pick()
        folder = self.copy()
        flip(os.path.join(folder, idx), 8)
        _, said = self.go_on(folder, expect_reused=2)
        self.assertRegex(said, r"refused 1 \(.*version")

    def test_a_flipped_bit_in_the_body_of_an_index(self):
        """Found when a request needs it: read again, because corrupt, and never offered again."""
        _, index, idx, _ = self.pick()
        tokens_at, parts_at = index.head_bytes, index.head_bytes + 4 * len(index.tokens)
        for position in (tokens_at + 2, tokens_at + 4 * (len(index.tokens) // 2), parts_at + 5, index.total_bytes - 3):
            with self.subTest(position=position):
                folder = self.copy()
                flip(os.path.join(folder, idx), position)
                answers, _ = self.go_on(folder, expect_reused=2)
                self.assertEqual([a.reason for a in answers if a.tier != "disk"], ["corrupt"])

    @staticmethod
    def own(index, parts):
        return [part for part in parts if index.files[part.file][0] == index.id]

    def test_a_flipped_bit_in_a_block(self):
        """Every block before the match is needed: read again, because corrupt."""
        _, index, _, sess = self.pick()
        blocks = self.own(index, index.blocks)
        for block in (blocks[0], blocks[len(blocks) // 2]):
            with self.subTest(block=block):
                folder = self.copy()
                flip(os.path.join(folder, sess), block.offset + block.length // 2)
                answers, _ = self.go_on(folder, expect_reused=2)
                self.assertEqual([a.reason for a in answers if a.tier != "disk"], ["corrupt"])

    def test_a_flipped_bit_in_a_checkpoint(self):
        """A checkpoint that the request does not need may go unnoticed; the answers stay right."""
        _, index, _, sess = self.pick()
        checkpoints = self.own(index, index.checkpoints)
        self.assertTrue(checkpoints)
        corrupt = 0
        for checkpoint in checkpoints:
            with self.subTest(checkpoint=checkpoint):
                folder = self.copy()
                flip(os.path.join(folder, sess), checkpoint.offset + checkpoint.length // 2)
                answers, _ = self.go_on(folder)
                corrupt += sum(a.reason == "corrupt" for a in answers)
        self.assertGreater(corrupt, 0, "no checkpoint was needed")

    def test_a_flipped_bit_in_the_header_of_a_session_file(self):
        _, _, _, sess = self.pick()
        for position in (0, 8, 24, 60):
            with self.subTest(position=position):
                folder = self.copy()
                flip(os.path.join(folder, sess), position)
                self.go_on(folder)

    def test_a_cut_index(self):
        _, index, idx, _ = self.pick()
        for length in (0, 7, 100, index_file.FIXED_BYTES, index.head_bytes - 1, index.head_bytes, index.total_bytes - 1):
            with self.subTest(length=length):
                folder = self.copy()
                cut(os.path.join(folder, idx), length)
                self.go_on(folder, expect_reused=2)

    def test_a_longer_index(self):
        _, _, idx, _ = self.pick()
        folder = self.copy()
        with open(os.path.join(folder, idx), "ab") as file:
            file.write(b"more")
        self.go_on(folder, expect_reused=2)

    def test_a_cut_session_file(self):
        _, index, _, sess = self.pick()
        needed = dict(index.files)[index.id]
        for length in (0, 100, 4096, needed // 2 // 4096 * 4096, needed - 1):
            with self.subTest(length=length):
                folder = self.copy()
                cut(os.path.join(folder, sess), length)
                _, said = self.go_on(folder, expect_reused=2)
                self.assertRegex(said, r"refused 1 \(.*(truncated|foreign|corrupt)")

    def test_a_missing_session_file(self):
        _, _, _, sess = self.pick()
        folder = self.copy()
        os.unlink(os.path.join(folder, sess))
        _, said = self.go_on(folder, expect_reused=2)
        self.assertRegex(said, r"refused 1 \(.*truncated")

    def test_swapped_session_files(self):
        """Bytes that are intact but in the wrong place are found: digests know where they belong."""
        one, two = sorted(self.indexes)[:2]
        folder = self.copy()
        a, b = (os.path.join(folder, f"conv-{i}.sess") for i in (one, two))
        os.rename(a, a + ".x")
        os.rename(b, a)
        os.rename(a + ".x", b)
        self.go_on(folder, expect_reused=1)

    def test_swapped_indexes(self):
        one, two = sorted(self.indexes)[:2]
        folder = self.copy()
        a, b = (os.path.join(folder, f"conv-{i}.idx") for i in (one, two))
        os.rename(a, a + ".x")
        os.rename(b, a)
        os.rename(a + ".x", b)
        self.go_on(folder, expect_reused=1)

    def test_files_of_others_are_not_touched(self):
        """Not with our name, not with our extension: without our magic a file is somebody else's (lesson 16)."""
        folder = self.copy()
        contents = {FOREIGN: b"a diary, not a session", "conv-00000000000000fe.idx": b"S", "notes.txt": b"keep me",
                    "conv-zz.sess": b"STRASES", "conv-00000000000000fd.sess": b"",
                    "conv-00000000000000fc.idx.tmp": b"not ours either"}
        for name, content in contents.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
        os.mkdir(os.path.join(folder, "conv-00000000000000fb.idx"))
        self.go_on(folder, expect_reused=3)
        for name, content in contents.items():
            with open(os.path.join(folder, name), "rb") as file:
                self.assertEqual(file.read(), content, name)
        self.assertTrue(os.path.isdir(os.path.join(folder, "conv-00000000000000fb.idx")))

    def test_links_are_not_followed(self):
        """A link out of the folder is neither read nor removed through (lesson 24)."""
        folder, elsewhere = self.copy(), self.folder()
        _, _, idx, sess = self.pick()
        for name in (idx, sess):
            shutil.move(os.path.join(folder, name), os.path.join(elsewhere, name))
            os.symlink(os.path.join(elsewhere, name), os.path.join(folder, name))
        sizes = {name: os.path.getsize(os.path.join(elsewhere, name)) for name in (idx, sess)}
        self.go_on(folder, expect_reused=2)
        self.assertEqual({name: os.path.getsize(os.path.join(elsewhere, name)) for name in (idx, sess)}, sizes)

    def test_random_damage(self):
        """A seed a round; what it did is printed when it fails."""
        for seed in range(8):
            source = random.Random(seed)
            folder = self.copy()
            done = []
            for _ in range(source.randint(1, 4)):
                name = source.choice([n for n in sorted(os.listdir(folder)) if n.startswith("conv-")])
                path = os.path.join(folder, name)
                size = os.path.getsize(path)
                if size and source.random() < 0.7:
                    position = source.randrange(size)
                    flip(path, position, 1 << source.randrange(8))
                    done.append((name, "flip", position))
                else:
                    length = source.randrange(size + 1)
                    cut(path, length)
                    done.append((name, "cut", length))
            with self.subTest(seed=seed, done=done):
                self.go_on(folder)

    def test_verify_finds_each_flip_without_a_server(self):
        """Sampled bytes of an index and of every part that is in use: named, exit status not 0, no crash."""
        _, index, idx, sess = self.pick()
        source = random.Random(7)
        own = self.own(index, index.blocks + index.checkpoints)
        places = [(idx, source.randrange(index.total_bytes)) for _ in range(24)]
        places += [(sess, part.offset + source.randrange(part.length)) for part in own]
        folder = self.copy()
        self.assertEqual(self.run_strata("sessions", "verify", folder)[0], 0)
        for name, position in places:
            with self.subTest(name=name, position=position):
                path = os.path.join(folder, name)
                flip(path, position)
                status, out, err = self.run_strata("sessions", "verify", folder)
                flip(path, position)
                self.assertNotEqual(status, 0, out + err)
                self.assertIn(re.match(r"conv-[0-9a-f]+", name).group(0)[5:], out + err)


if __name__ == "__main__":
    harness.main()
