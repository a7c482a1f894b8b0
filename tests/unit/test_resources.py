from orchestrator.installation import data_folder


def test_shipped_data_is_found():
    assert (data_folder("reports") / "templates" / "report.html.j2").is_file()
    assert (data_folder("reports") / "published" / "tflite_published.csv").is_file()
