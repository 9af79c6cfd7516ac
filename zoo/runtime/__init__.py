"""Runtime: files, settings, processes, plugins and exported names; helpers of every room, which import none."""
