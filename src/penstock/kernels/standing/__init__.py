"""Very many standing join queries over two streams: cost by what is affected (003, chapter 4)."""
