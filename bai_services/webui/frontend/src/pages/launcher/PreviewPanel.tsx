import { Alert, Flex, Progress, Skeleton, Spin, Tag, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { ImageLabel } from '../../components/ImageLabel';
import { OverflowTargets } from '../../components/OverflowTargets';
import { SlotTags } from '../../components/SlotTags';
import { startText } from '../../components/startText';
import { useReadOnlyReason } from '../../components/useReadOnlyReason';
import type { SessionPreview } from '../../data/sessions/launch';
import { isOver, money } from '../../data/usage/budgets';
import { reasonText } from '../../i18n/reasonText';
import { idOf } from './Field';
import { useLauncher } from './launcherContext';

/**
 * Preview of the session: problems of the request; the expected start, with the reasons for a wait
 * and suggestions for an earlier start; image, resources, folders and quotas.
 */
export function PreviewPanel({ isCurrent }: { isCurrent: boolean }) {
  const { t } = useTranslation();
  const { preview } = useLauncher();
  const readOnlyReason = useReadOnlyReason();
  if (!preview) {
    return <Skeleton active />;
  }
  return (
    <Spin spinning={!isCurrent} delay={300}>
      <div aria-live="polite">
        {preview.problems.length > 0 && <Problems preview={preview} />}
        {preview.existing_session && <Alert type="warning" showIcon title={t('launcher.exists')} />}
        {readOnlyReason && <Alert type="warning" showIcon title={readOnlyReason} />}
        {preview.session && !preview.existing_session && !readOnlyReason && (
          <StartTime preview={preview} />
        )}
        {preview.session && (
          <>
            <div style={{ marginBlock: 12 }}>
              <ImageLabel
                name={preview.session.image}
                architecture={preview.session.architecture}
              />
              <Typography.Text type="secondary">
                {preview.session.resource_group}
                {preview.session.cluster_size > 1 &&
                  ` · ${t('launcher.kernels', { count: preview.session.cluster_size })}`}
              </Typography.Text>
            </div>
            <SlotTags slots={preview.session.total} />
            <Costs preview={preview} />
            <Mounts mounts={preview.session.mounts} />
          </>
        )}
        {preview.session?.mounts.length === 0 && (
          <Alert
            style={{ marginBlock: 12 }}
            type="warning"
            showIcon
            title={t('launcher.no-folder-warning')}
          />
        )}
        {preview.caps.length > 0 && <Caps caps={preview.caps} />}
      </div>
    </Spin>
  );
}

/** The cost of the session, and the remaining budget of its project. */
function Costs({ preview }: { preview: SessionPreview }) {
  const { t, i18n } = useTranslation();
  const { cost_per_hour: cost, budget_left: left, currency } = preview;
  if (cost === null && left === null) {
    return null;
  }
  const text = (amount: number) => money(amount, currency, i18n.language);
  return (
    <Typography.Paragraph style={{ marginBlock: '12px 0' }}>
      {cost !== null && <div>{t('launcher.cost-per-hour', { cost: text(cost) })}</div>}
      {left !== null && (
        <Typography.Text {...(left <= 0 ? { type: 'danger' as const } : {})}>
          {isOver(left, currency)
            ? t('launcher.budget-over', { amount: text(-left) })
            : t('launcher.budget-left', { left: text(left) })}
        </Typography.Text>
      )}
    </Typography.Paragraph>
  );
}

type Mount = NonNullable<SessionPreview['session']>['mounts'][number];

/** The folders of the session. Automatically mounted folders are marked. */
function Mounts({ mounts }: { mounts: Mount[] }) {
  const { t } = useTranslation();
  const { options } = useLauncher();
  if (mounts.length === 0) {
    return null;
  }
  const automatic = options?.vfolders.filter(folder => folder.is_auto_mounted) ?? [];
  return (
    <section style={{ marginBlockStart: 16 }}>
      <Typography.Title level={5}>{t('launcher.section-folders')}</Typography.Title>
      <ul style={{ margin: 0, paddingInlineStart: 16 }}>
        {mounts.map(({ vfolder, vfolder_id: id, subpath, path, permission }) => (
          <li key={path}>
            {[vfolder, subpath].filter(Boolean).join('/')} → {path} (
            {t(`permissions.${permission}`)}){' '}
            {automatic.some(folder => folder.id === id) && (
              <Tag>{t('launcher.auto-mounted-tag')}</Tag>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Problems({ preview }: { preview: SessionPreview }) {
  const { t } = useTranslation();
  return (
    <Alert
      type="error"
      showIcon
      title={t('launcher.cannot-start', { count: preview.problems.length })}
      description={
        <ul style={{ margin: 0, paddingInlineStart: 16 }}>
          {preview.problems.map(({ field, problem }) => (
            <li key={field + problem}>
              {field ? <a href={`#${idOf(field)}`}>{problem}</a> : problem}
            </li>
          ))}
        </ul>
      }
    />
  );
}

function StartTime({ preview }: { preview: SessionPreview }) {
  const { t, i18n } = useTranslation();
  if (preview.starts_now) {
    return <Alert type="success" showIcon title={t('launcher.starts-now')} />;
  }
  if (!preview.is_complete) {
    return <Alert type="info" showIcon title={t('launcher.start-unknown')} />;
  }
  return (
    <Alert
      type="info"
      showIcon
      title={startText(t, preview.estimate, i18n.language)}
      description={
        <>
          {preview.position !== null && (
            <div>
              {t('why.position', {
                position: preview.position,
                group: preview.session?.resource_group
              })}
            </div>
          )}
          <ul style={{ margin: 0, paddingInlineStart: 16 }}>
            {preview.checks
              .filter(check => !check.passed)
              .map(check => (
                <li key={check.message}>{reasonText(i18n, check)}</li>
              ))}
          </ul>
          {preview.sooner.length > 0 && (
            <>
              <strong>{t('why.sooner')}</strong>
              <ul style={{ margin: 0, paddingInlineStart: 16 }}>
                {preview.sooner.map(remedy => (
                  <li key={remedy.message}>{reasonText(i18n, remedy)}</li>
                ))}
              </ul>
            </>
          )}
          <OverflowTargets targets={preview.overflow} />
        </>
      }
    />
  );
}

/** Each quota with its current usage and its usage including the session. */
function Caps({ caps }: { caps: SessionPreview['caps'] }) {
  const { t } = useTranslation();
  return (
    <section style={{ marginBlockStart: 16 }}>
      <Typography.Title level={5}>{t('launcher.quotas')}</Typography.Title>
      {caps.map(cap => {
        const name = `${t(`launcher.scope-${cap.scope}`, cap.scope)}: ${cap.slot}`;
        const text = t('launcher.cap', {
          asked: cap.asked,
          used: cap.used,
          limit: cap.limit
        });
        return (
          <div key={cap.scope + cap.scope_id + cap.slot} style={{ marginBottom: 4 }}>
            <Flex wrap justify="space-between" gap="small">
              <span>{name}</span>
              <span>
                {text} {cap.is_exceeded && <Tag color="error">{t('launcher.over')}</Tag>}
              </span>
            </Flex>
            <Progress
              size="small"
              showInfo={false}
              percent={Math.min(cap.total_percent, 100)}
              success={{ percent: Math.min(cap.used_percent, 100) }}
              status={cap.is_exceeded ? 'exception' : 'normal'}
              aria-label={`${name}: ${text}`}
            />
          </div>
        );
      })}
    </section>
  );
}
