import { Button, Flex, Steps } from 'antd';
import { useTranslation } from 'react-i18next';
import { useLauncher } from './launcherContext';
import { sectionId, STEPS, stepsWithProblems, type Step } from './steps';

interface StepProps {
  current: Step;
  onChoose: (step: Step) => void;
}

/** Show a step and move the focus to it, for the keyboard and screen readers. */
export function showStep(step: Step) {
  const element = document.getElementById(sectionId(step));
  element?.scrollIntoView({ block: 'start' });
  element?.focus({ preventScroll: true });
}

/** List of the steps. Steps with problems are marked; a click shows the step. */
export function StepList({ current, onChoose }: StepProps) {
  const { t } = useTranslation();
  const { preview } = useLauncher();
  const wrong = stepsWithProblems(preview);
  return (
    <nav aria-label={t('launcher.sections')}>
      <Steps
        size="small"
        orientation="vertical"
        current={STEPS.indexOf(current)}
        onChange={index => onChoose(STEPS[index] ?? 'type')}
        items={STEPS.map(step => ({
          title: t(`launcher.section-${step}`),
          ...(wrong.has(step) ? { status: 'error' as const } : {})
        }))}
      />
    </nav>
  );
}

/** Buttons that reset the form, or show the previous, the next or the last step. */
export function StepButtons(props: StepProps & { onReset: () => void }) {
  const { t } = useTranslation();
  const index = STEPS.indexOf(props.current);
  const next = STEPS[index + 1];
  const previous = STEPS[index - 1];
  return (
    <Flex wrap gap="small" justify="space-between" className="bai-step-buttons">
      <Button onClick={props.onReset}>{t('launcher.reset')}</Button>
      <Flex wrap gap="small">
        <Button disabled={!previous} onClick={() => previous && props.onChoose(previous)}>
          {t('launcher.previous')}
        </Button>
        <Button disabled={!next} onClick={() => next && props.onChoose(next)}>
          {t('launcher.next')}
        </Button>
        <Button onClick={() => props.onChoose('review')}>{t('launcher.skip')}</Button>
      </Flex>
    </Flex>
  );
}
