from fedadb.cli import main

main()
