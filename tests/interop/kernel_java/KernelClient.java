import io.delta.kernel.Operation;
import io.delta.kernel.Scan;
import io.delta.kernel.Snapshot;
import io.delta.kernel.Transaction;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.engine.FileReadResult;
import io.delta.kernel.internal.InternalScanFileUtils;
import io.delta.kernel.internal.data.ScanStateRow;
import io.delta.kernel.unitycatalog.UCCatalogManagedClient;
import io.delta.kernel.unitycatalog.UCTableIdentifier;
import io.delta.kernel.utils.CloseableIterable;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.FileStatus;
import io.delta.storage.commit.TableIdentifier;
import io.delta.storage.commit.uccommitcoordinator.UCDeltaModels.TableInfo;
import io.delta.storage.commit.uccommitcoordinator.UCDeltaTokenBasedRestClient;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;

/**
 * Reads, and appends to, a managed table whose first column is a long, with Delta's Java kernel.
 *
 * <p>Arguments: URI, token, schema, table, and {@code read}, {@code read VERSION} or {@code copy}, which appends all rows once more.
 * Prints the version, and the first column of the rows.
 */
public final class KernelClient {
  private final Engine engine = DefaultEngine.create(new Configuration());
  private final UCCatalogManagedClient client;
  private final UCTableIdentifier name;
  private final TableInfo table;

  private KernelClient(UCDeltaTokenBasedRestClient catalog, String schema, String table) throws Exception {
    this.client = new UCCatalogManagedClient(catalog);
    this.name = new UCTableIdentifier("delvec", schema, table);
    this.table = catalog.loadTable(new TableIdentifier(new String[] {"delvec", schema}, table));
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, String> settings = Map.of("uri", arguments[0], "auth.type", "static", "auth.token", arguments[1]);
    try (UCDeltaTokenBasedRestClient catalog = new UCDeltaTokenBasedRestClient(settings, Configuration::new)) {
      KernelClient kernel = new KernelClient(catalog, arguments[2], arguments[3]);
      Optional<Long> version = arguments.length > 5 ? Optional.of(Long.parseLong(arguments[5])) : Optional.empty();
      Snapshot snapshot = kernel.load(version);
      if (arguments[4].equals("copy")) {
        System.out.println("VERSION " + kernel.append(snapshot, kernel.rows(snapshot)));
        return;
      }
      List<Long> ids = new ArrayList<>();
      for (FilteredColumnarBatch batch : kernel.rows(snapshot)) {
        batch.getRows().forEachRemaining(row -> ids.add(row.getLong(0)));
      }
      Collections.sort(ids);
      System.out.println("VERSION " + snapshot.getVersion());
      System.out.println("IDS " + ids);
    }
  }

  private Snapshot load(Optional<Long> version) {
    return client.loadSnapshot(
        engine, table.getTableId().toString(), table.getLocation(), name, version, Optional.empty());
  }

  private List<FilteredColumnarBatch> rows(Snapshot snapshot) throws Exception {
    Scan scan = snapshot.getScanBuilder().build();
    Row state = scan.getScanState(engine);
    List<FilteredColumnarBatch> batches = new ArrayList<>();
    try (CloseableIterator<FilteredColumnarBatch> files = scan.getScanFiles(engine)) {
      while (files.hasNext()) {
        Iterator<Row> rows = files.next().getRows();
        while (rows.hasNext()) {
          Row file = rows.next();
          FileStatus status = InternalScanFileUtils.getAddFileStatus(file);
          CloseableIterator<ColumnarBatch> data =
              engine
                  .getParquetHandler()
                  .readParquetFiles(
                      iterator(List.of(status)), ScanStateRow.getPhysicalDataReadSchema(state), Optional.empty())
                  .map(FileReadResult::getData);
          Scan.transformPhysicalData(engine, state, file, data).forEachRemaining(batches::add);
        }
      }
    }
    return batches;
  }

  private long append(Snapshot snapshot, List<FilteredColumnarBatch> rows) throws Exception {
    Transaction transaction = snapshot.buildUpdateTableTransaction("kernel-java", Operation.WRITE).build(engine);
    Row state = transaction.getTransactionState(engine);
    var logical = Transaction.transformLogicalData(engine, state, iterator(rows), Map.of());
    var context = Transaction.getWriteContext(engine, state, Map.of());
    var files =
        engine
            .getParquetHandler()
            .writeParquetFiles(context.getTargetDirectory(), logical, context.getStatisticsColumns());
    var actions = Transaction.generateAppendActions(engine, state, files, context);
    return transaction.commit(engine, CloseableIterable.inMemoryIterable(actions)).getVersion();
  }

  private static <T> CloseableIterator<T> iterator(List<T> items) {
    Iterator<T> all = items.iterator();
    return new CloseableIterator<T>() {
      @Override
      public boolean hasNext() {
        return all.hasNext();
      }

      @Override
      public T next() {
        return all.next();
      }

      @Override
      public void close() {}
    };
  }
}
