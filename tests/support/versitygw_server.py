"""versitygw, a private S3 server: slower to install than moto, but stricter."""

from tests.support.object_store_server import BUILD, ObjectStoreServer, program

ACCESS_KEY = "test"
SECRET_KEY = "test-secret"
_MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_BUILT = BUILD / "versitygw"


class VersitygwServer(ObjectStoreServer):
    """versitygw, built once with Go, which takes minutes."""

    def command(self):
        installer = ["go", "install", _MODULE]
        command = program("versitygw", _BUILT / "versitygw", installer, GOBIN=str(_BUILT), GOFLAGS="-p=2")
        objects, beside = self.folder / "objects", self.folder / "beside"
        objects.mkdir()
        beside.mkdir()
        address = f"127.0.0.1:{self.port}"
        # Not all file systems support the extended attributes in which it would store metadata.
        keys = ["--access", ACCESS_KEY, "--secret", SECRET_KEY]
        return [command, "--port", address, *keys, "--quiet", "posix", "--sidecar", beside, objects]
