package io.unitycatalog.spark;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The part of unitycatalog-spark that delta-spark does not do itself: dropping a table, and creating an external one. */
public class UCProxy implements TableCatalog, SupportsNamespaces {
  private String name;
  private CaseInsensitiveStringMap options;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    this.options = options;
  }

  @Override
  public String name() {
    return name;
  }

  private HttpRequest.Builder to(String path) {
    URI uri = URI.create(options.get("uri") + "/api/2.1/unity-catalog/tables" + path);
    return HttpRequest.newBuilder(uri)
        .header("Authorization", "Bearer " + options.get("token"))
        .header("Content-Type", "application/json");
  }

  private HttpResponse<String> sent(HttpRequest.Builder request) {
    try {
      return HttpClient.newHttpClient().send(request.build(), HttpResponse.BodyHandlers.ofString());
    } catch (Exception error) {
      throw new RuntimeException(error);
    }
  }

  @Override
  public boolean dropTable(Identifier ident) {
    String full = name + "." + String.join(".", ident.namespace()) + "." + ident.name();
    return sent(to("/" + full).DELETE()).statusCode() == 200;
  }

  @Override
  public Table loadTable(Identifier ident) throws NoSuchTableException {
    throw new NoSuchTableException(ident);
  }

  @Override
  public Identifier[] listTables(String[] namespace) {
    return new Identifier[0];
  }

  @Override
  public Table createTable(
      Identifier ident, StructType schema, Transform[] partitions, Map<String, String> properties) {
    String body =
        String.format(
            "{\"name\":\"%s\",\"catalog_name\":\"%s\",\"schema_name\":\"%s\",\"table_type\":\"EXTERNAL\","
                + "\"data_source_format\":\"DELTA\",\"columns\":[],\"storage_location\":\"%s\"}",
            ident.name(), name, String.join(".", ident.namespace()), properties.get(TableCatalog.PROP_LOCATION));
    HttpResponse<String> answer = sent(to("").POST(HttpRequest.BodyPublishers.ofString(body)));
    if (answer.statusCode() != 200) throw new RuntimeException(answer.body());
    return null;
  }

  @Override
  public Table alterTable(Identifier ident, TableChange... changes) {
    throw new UnsupportedOperationException("alterTable");
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw new UnsupportedOperationException("renameTable");
  }

  @Override
  public String[][] listNamespaces() {
    return new String[0][];
  }

  @Override
  public String[][] listNamespaces(String[] namespace) {
    return new String[0][];
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) {
    return Map.of();
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {}

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {}

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    return true;
  }
}
