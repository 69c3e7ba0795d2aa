"""The bucket for test tables on any S3 server."""

import boto3

BUCKET = "lake"


def settings(endpoint, access_key, secret_key):
    """Return environment variables for clients of the server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
        "AWS_REGION": "us-east-1",
    }


def create_bucket(endpoint, access_key, secret_key):
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()
