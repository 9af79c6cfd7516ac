"""Slips where places are encrypted: noise, masks, errors that need room, keys, and what a record must say of it."""

from tests.mutation.edit import edits_of

PACKAGE = "examples/encrypted_bridge/encrypted_bridge"
TESTS = "examples/encrypted_bridge/tests"
OF_PUBLISHER = (f"{TESTS}/test_publishers.py",)

ENCRYPTION = (
    *edits_of(
        f"{PACKAGE}/protocol.py",
        (f"{TESTS}/test_protocol.py",),
        (
            "no fresh zero hides the mask",
            "encryptor.encrypt_zero(total)",
            "ckks._loaded(total, ckks._ciphertext(np.zeros((2, DEGREE), dtype=np.int64)))",
        ),
        ("half of the noise under encryption", "np.rint(sigma * SCALE", "np.rint(sigma / 2 * SCALE"),
        (
            "all directions of an item have one noise",
            "_steps(plan.noise_std, noise, (len(items), directions))",
            "_steps(plan.noise_std, noise, (len(items), 1)).repeat(directions, axis=1)",
        ),
        ("the noise is left out under encryption", "halves[0, :directions] + steps[key][item]", "halves[0, :directions]"),
        ("noise stands as float64 has it", "return steps if step < 2 else", "return steps if True else"),
        ("rows are shortened in the bound alone", "rows_factor(len(items), directions) * ROWS_SCALE", "ROWS_SCALE"),
        ("places are encrypted as long as they are", "bounded * SHORTER * PLACES_SCALE", "bounded * PLACES_SCALE"),
        ("the target does not clip", "clip_vectors(places[:, None, :], LONGEST)[:, 0, :]", "places"),
        ("powers turn the wrong way", "np.where(power > 0, DEGREE - power, 0)", "power"),
        ("powers lose their sign", "np.where(power > 0, -1.0, 1.0)", "np.where(power > 0, 1.0, 1.0)"),
        (
            "what does not fit is let through",
            "    check_room(plan, min(rows.shape[1], plan.kept_items or rows.shape[1]), directions, len(known))\n",
            "",
        ),
    ),
    *edits_of(
        f"{PACKAGE}/parameters.py",
        (f"{TESTS}/test_parameters.py",),
        ("the error of a fresh zero counts once", "room / (2 * most * zeros", "room / (most * zeros"),
        ("an error of two products is one of one", "ERROR / 2 * (2 * DEGREE + 1)", "ERROR / 2 * (DEGREE + 1)"),
        ("errors of places move no difference", "+ half**2 * room", "+ 0 * room"),
        ("errors of places are forgotten", "return SHORTER + math.sqrt(directions)", "return SHORTER + 0 * math.sqrt(directions)"),
        ("what cutting rows off moves is forgotten", "2 * math.sqrt(kept) / ROWS_SCALE", "0 * math.sqrt(kept) / ROWS_SCALE"),
        ("the target's noise has one size", "return max(FLOOD * plan.noise_std, least)", "return FLOOD * plan.noise_std"),
        ("sums beyond the modulus", "MODULUS / (2 * SCALE)", "MODULUS / SCALE"),
    ),
    *edits_of(
        f"{PACKAGE}/decryption.py",
        OF_PUBLISHER,
        (
            "a map that cannot be written uses the keys",
            '        _as_map(release, table).save(Path(folder) / "map")\n',
            "        pass\n",
        ),
        ("everybody may read the secret key", '0o600), "wb"', '0o644), "wb"'),
        (
            "keys take the place of others",
            "        check_new(path)\n        content",
            "        path.unlink(missing_ok=True)\n        content",
        ),
        ("any keys decrypt any map", "if made_with != tensor_digest(keys.public_key):", "if made_with is None:"),
        ("a map without noise is decrypted", "        made.check_noise()\n", ""),
    ),
    *edits_of(
        f"{PACKAGE}/decryption.py",
        (f"{TESTS}/test_deviation.py",),
        ("maps that differ are released", "accepted = agree(maps, mechanism)", "accepted = True"),
        ("keys decrypt again", 'os.O_EXCL, 0o600), "w"', 'os.O_TRUNC, 0o600), "w"'),
    ),
    *edits_of(
        f"{PACKAGE}/protocol.py",
        (f"{TESTS}/test_deviation.py",),
        ("the target adds no noise of its own", "own = flood(plan, *maps.shape[1:]) *", "own = 0 *"),
    ),
    *edits_of(
        f"{PACKAGE}/kinds.py",
        OF_PUBLISHER,
        ("a ciphertext that hides nothing is taken", "half.any(dim=-1).all()", "half.any() or True"),
    ),
    *edits_of(
        f"{PACKAGE}/publishers.py",
        OF_PUBLISHER,
        (
            "the secret key is handed over",
            'return {"places": torch.from_numpy(made.places), "public_key": public_key,',
            'return {"places": torch.from_numpy(made.places), "public_key": torch.from_numpy(made.secret).expand(2, -1).clone(),',
        ),
        (
            "encrypted users are joined by their place in the list",
            "known = index_of(source.user_ids, given.user_ids)",
            "known = torch.arange(given.num_users).numpy()",
        ),
    ),
    *edits_of(
        f"{PACKAGE}/mechanism.py",
        OF_PUBLISHER,
        ("the target's own noise hides the source's", "math.hypot(self.noise_std, flood(", "math.hypot(self.noise_std, 0 * flood("),
        ("nobody says what encryption rests on", '("target_follows", "encryption_hard"))', "())"),
        ("the target's users are said to have a record", '"target_users": "target_encrypted"', '"none": "target_encrypted"'),
    ),
    *edits_of(
        "zoo/publishers/bridge.py",
        ("tests/zoo/publishers/test_bridge.py",),
        ("places are taken from anybody", "None if self.trusted is None else TrustedKeys.read(self.trusted)", "None"),
    ),
    *edits_of(
        "zoo/release/layouts.py",
        ("tests/zoo/runtime/test_plugins.py",),
        (
            "a plugin takes a kind of ours",
            "(KINDS.get(kind) or _plugged_in(kind))",
            "(_plugged_in(kind) if kind in plugins.brought('release kinds') else KINDS[kind])",
        ),
        ("a plugin's class may be of another kind", ' or getattr(found, "kind", None) != kind', ''),
    ),
    *edits_of(
        f"{PACKAGE}/kinds.py",
        OF_PUBLISHER,
        ("numbers beyond the modulus are let in", "<= int(numbers.max()) < MODULUS:", "<= int(numbers.max()):"),
    ),
)  # fmt: skip
