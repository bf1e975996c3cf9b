import { useState } from 'react';
import { Card, Flex, Pagination, Progress, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { PAGE_SIZE, rangeOf, useExistingPage } from '../../components/list/PagedList';
import { Tag } from '../../components/Tag';
import { formatTime } from '../../components/time';
import { UserText } from '../../components/UserText';
import { budgetsQuery, isOver, money, type ProjectBudget } from '../../data/usage/budgets';
import { replacesData } from '../../data/connection';

/** The spent part of each project budget; renders nothing if there are no budgets. */
export function Budgets() {
  const { t } = useTranslation();
  const [page, setPage] = useState(1);
  const { data, error, refetch } = useQuery(budgetsQuery(rangeOf(page)));
  useExistingPage(page, data?.total, setPage);
  if (replacesData(error, data)) {
    return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  }
  if (!data || data.total === 0) {
    return null;
  }
  return (
    <section aria-label={t('budgets.title')} style={{ marginBottom: 24 }}>
      <Typography.Title level={2} style={{ fontSize: 16 }}>
        {t('budgets.title')}
      </Typography.Title>
      <Flex wrap gap="small">
        {data.items.map(budget => (
          <BudgetCard key={budget.project_id} budget={budget} />
        ))}
      </Flex>
      <Pagination
        size="small"
        current={page}
        pageSize={PAGE_SIZE}
        total={data.total}
        onChange={setPage}
        showSizeChanger={false}
        hideOnSinglePage
        style={{ marginTop: 8 }}
      />
    </section>
  );
}

function BudgetCard({ budget }: { budget: ProjectBudget }) {
  const { t, i18n } = useTranslation();
  const text = (amount: number) => money(amount, budget.currency, i18n.language);
  const percent = budget.spent_percent ?? 0;
  const left = budget.left ?? budget.amount;
  const end = formatTime(budget.period_end, i18n.language);
  const warning = Math.min(...budget.warn_percents, 100);
  return (
    <Card size="small" style={{ flex: '1 1 280px', maxWidth: 420 }}>
      <Flex justify="space-between" gap="small" wrap>
        <strong>
          <UserText text={`${budget.domain}/${budget.project}`} />
        </strong>
        {budget.blocked_at && <Tag color="red">{t('budgets.blocked')}</Tag>}
      </Flex>
      <Progress
        percent={Math.min(percent, 100)}
        showInfo={false}
        status={percent >= 100 ? 'exception' : 'normal'}
        {...(percent >= warning && percent < 100 ? { strokeColor: '#d48806' } : {})}
        aria-label={t('budgets.spent-percent-of', { percent, project: budget.project })}
      />
      <div>
        {t('budgets.spent-of', { spent: text(budget.spent ?? 0), amount: text(budget.amount) })}
      </div>
      <Typography.Text type="secondary">
        {isOver(left, budget.currency)
          ? t('budgets.over-until', { amount: text(-left), end })
          : t('budgets.left-until', { left: text(left), end })}
      </Typography.Text>
    </Card>
  );
}
