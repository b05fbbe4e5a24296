package penstock;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, without the processes that it starts.
 *
 * <p>Without its native library Hadoop runs {@code chmod} for every file and directory that it makes, and {@code
 * readlink} for every one that it renames: some forty processes for a micro-batch of a query without state, five sixths
 * of its time. Java can do both by itself. Nothing else differs; {@code ./dev jar} compiles this file.
 */
public final class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new Raw());
  }

  /** What {@code FileContext} asks for, by which Spark writes checkpoints; Hadoop's own is {@code LocalFs}. */
  public static final class Context extends ChecksumFs {
    public Context(URI uri, Configuration conf) throws IOException, URISyntaxException {
      super(new RawContext(uri, conf));
    }
  }

  private static final class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      var place = pathToFile(path).toPath();
      if (!place.getFileSystem().supportedFileAttributeViews().contains("unix")) {
        super.setPermission(path, permission);
        return;
      }
      int mode = permission.toShort();
      if (Files.isDirectory(place)) {
        // As chmod has it: a directory goes on giving its group to what is made in it.
        mode |= (int) Files.getAttribute(place, "unix:mode") & 06000;
      }
      Files.setAttribute(place, "unix:mode", mode);
    }

    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
      boolean link = Files.isSymbolicLink(pathToFile(path).toPath());
      return link ? super.getFileLinkStatus(path) : getFileStatus(path);
    }
  }

  private static final class RawContext extends DelegateToFileSystem {
    RawContext(URI uri, Configuration conf) throws IOException, URISyntaxException {
      super(uri, new Raw(), conf, "file", false);
    }

    @Override
    public int getUriDefaultPort() {
      return -1; // local files have none
    }

    @Override
    public boolean isValidName(String name) {
      return true; // the system decides, as with Hadoop's own
    }
  }
}
