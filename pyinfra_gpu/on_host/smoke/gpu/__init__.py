"""The smoke test's GPU side: what is measured on NVIDIA GPUs, and how it is judged.

Same halves as around it: what runs in the launcher (`host`, `transport`, `xid`, `precision`'s
ladder, the checks) never imports torch; what runs in a rank or a child (`device`, `bandwidth`,
`pairs`, `formats`) measures and decides nothing.
"""
