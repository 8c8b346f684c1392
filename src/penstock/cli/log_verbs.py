import typer

app = typer.Typer()


@app.command()
def show():
    pass


@app.command()
def query():
    pass
