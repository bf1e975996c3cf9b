import type { ReactNode } from 'react';
import { Descriptions, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../../components/bytes';
import { SlotTags } from '../../../components/SlotTags';
import { folderQuery } from '../../../data/folders/folders';
import { formatTime } from '../../../components/time';
import { UserText } from '../../../components/UserText';
import {
  revisionsQuery,
  startingReplicaQuery,
  type Endpoint,
  type Revision
} from '../../../data/serving/endpoints';
import { reasonText } from '../../../i18n/reasonText';
import { EndpointStatus } from '../EndpointStatus';
import { replicasText, revisionText, Tags, urlOf } from '../endpoints';
import { sharesOf, type Share } from '../shares';
import { CallSnippets } from './CallSnippets';
import type { ChangeSearch } from './EndpointDrawer';
import { StateNotice } from './StateNotice';

// On a phone, long values would leave the labels the width of one character.
const MIN_LABEL_WIDTH = 112;

interface OverviewProps {
  endpoint: Endpoint;
  onChange: ChangeSearch;
}

/** The state of an endpoint, what it runs, its limits, and how to call it. */
export function Overview({ endpoint, onChange }: OverviewProps) {
  const { data: revisions } = useQuery(revisionsQuery(endpoint.id));
  const revision = servingRevision(endpoint, revisions ?? []);
  const variant = (revision?.settings['variant'] as string | undefined) ?? '';
  return (
    <>
      <StateNotice endpoint={endpoint} onChange={onChange} />
      <Facts endpoint={endpoint} revisions={revisions ?? []} />
      <CallSnippets url={urlOf(endpoint)} variant={variant} isPublic={endpoint.is_public} />
      <Limits endpoint={endpoint} />
    </>
  );
}

/** The serving revision, else the revision that is being deployed. */
const servingRevision = (endpoint: Endpoint, revisions: Revision[]) =>
  revisions.find(({ number }) => number === (endpoint.active_revision ?? endpoint.target_revision));

function Facts({ endpoint, revisions }: { endpoint: Endpoint; revisions: Revision[] }) {
  const { t, i18n } = useTranslation();
  const { language } = i18n;
  const number = (value: number) => value.toLocaleString(language);
  const percent = new Intl.NumberFormat(language, { style: 'percent' });
  const shares = sharesOf(endpoint.weights, revisions);
  const shareText = ({ number, share }: Share) =>
    `${t('endpoints.revision-number', { number })}: ${percent.format(share)}`;
  const facts = {
    // The notice above shows the problem.
    status: <EndpointStatus endpoint={endpoint} showsProblem={false} />,
    url: (
      <Typography.Text copyable={{ text: urlOf(endpoint) }} style={{ overflowWrap: 'anywhere' }}>
        {urlOf(endpoint)}
      </Typography.Text>
    ),
    replicas: <ReplicaCount endpoint={endpoint} />,
    revision: revisionText(endpoint),
    ...(shares.length > 1 && { weights: shares.map(shareText).join(', ') }),
    requests: number(endpoint.requests),
    errors: number(endpoint.errors),
    ...runFacts(servingRevision(endpoint, revisions)),
    'is-public': t(endpoint.is_public ? 'entities.yes' : 'entities.no'),
    owner: <UserText text={endpoint.owner} />,
    project: <UserText text={endpoint.project} />,
    tags: <Tags tags={endpoint.tags} />,
    'created-at': formatTime(endpoint.created_at, language)
  };
  return <FactTable facts={facts} />;
}

/** The number of replicas, and why the next one has not started. */
function ReplicaCount({ endpoint }: { endpoint: Endpoint }) {
  const { i18n } = useTranslation();
  const isChanging = endpoint.status === 'deploying' || endpoint.status === 'scaling';
  const { data: replica } = useQuery({
    ...startingReplicaQuery(endpoint.id),
    enabled: isChanging
  });
  return (
    <>
      {replicasText(endpoint)}
      {isChanging && replica?.reason && (
        <Typography.Text type="secondary" style={{ display: 'block' }}>
          {reasonText(i18n, { message: replica.reason, coded: replica.reason_coded })}
        </Typography.Text>
      )}
    </>
  );
}

/** The limits of each gateway. */
function Limits({ endpoint }: { endpoint: Endpoint }) {
  const { t, i18n } = useTranslation();
  const { language } = i18n;
  const number = (value: number) => value.toLocaleString(language);
  const facts = {
    'max-queue': number(endpoint.max_queue),
    'queue-seconds': number(endpoint.queue_seconds),
    'max-concurrent-per-replica': number(endpoint.max_concurrent_per_replica),
    'request-seconds': number(endpoint.request_seconds),
    'max-body-bytes': formatBytes(endpoint.max_body_bytes, language),
    'prefix-characters': number(endpoint.prefix_characters)
  };
  return (
    <section style={{ marginBlockStart: 24 }}>
      <Typography.Title level={5}>{t('endpoints.limits')}</Typography.Title>
      <FactTable facts={facts} />
    </section>
  );
}

function FactTable({ facts }: { facts: Record<string, ReactNode> }) {
  const { t } = useTranslation();
  return (
    <Descriptions
      size="small"
      column={1}
      bordered
      styles={{ label: { minWidth: MIN_LABEL_WIDTH } }}
      items={Object.entries(facts).map(([key, children]) => ({
        key,
        label: t(`endpoints.${key}`),
        children: children || '–'
      }))}
    />
  );
}

/** A long command scrolls, so that the facts and examples below it stay within reach. */
function Command({ text }: { text: string | undefined }) {
  return text ? (
    <pre className="bai-command" tabIndex={0}>
      {text}
    </pre>
  ) : (
    '–'
  );
}

/**
 * The name of a folder, which a revision names by its name or id; without access to the folder,
 * only that text.
 */
function FolderName({ folder }: { folder: string }) {
  const { data } = useQuery(folderQuery(folder));
  return <code style={{ overflowWrap: 'anywhere' }}>{data?.name ?? folder}</code>;
}

/** What the replicas of a revision run; only the owner can read the command and the image. */
function runFacts(revision: Revision | undefined) {
  const settings = revision?.settings ?? {};
  const request = (settings['request'] ?? {}) as Record<string, unknown>;
  const text = (value: unknown) => (typeof value === 'string' && value ? value : undefined);
  const code = (value: unknown) =>
    text(value) && (
      <code style={{ overflowWrap: 'anywhere', whiteSpace: 'pre-wrap' }}>{text(value)}</code>
    );
  const folder = text(settings['model_folder']);
  const resources = (request['resources'] ?? {}) as Record<string, string>;
  const hasResources = Object.keys(resources).length > 0;
  return {
    variant: code(settings['variant']),
    'model-folder': folder && <FolderName folder={folder} />,
    ...('command' in settings && { command: <Command text={text(settings['command'])} /> }),
    ...('request' in settings && {
      image: code(request['image']),
      ...(!hasResources && { preset: code(request['preset']) }),
      ...(hasResources && { resources: <SlotTags slots={resources} /> })
    })
  };
}
