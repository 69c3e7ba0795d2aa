package io.unitycatalog.spark;

import org.apache.spark.sql.delta.catalog.DeltaCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Stands in for the class of unitycatalog-spark, by whose name delta-spark knows a Unity Catalog. */
public class UCSingleCatalog extends DeltaCatalog {
  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    UCProxy proxy = new UCProxy();
    proxy.initialize(name, options);
    setDelegateCatalog(proxy);
    super.initialize(name, options);
  }
}
